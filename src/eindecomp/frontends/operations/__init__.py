"""Operations that several frameworks have, written once on a `Trace`."""
