"""Where the parts of a tensor lie: meshes of devices, cuts, the blocks that devices hold."""
