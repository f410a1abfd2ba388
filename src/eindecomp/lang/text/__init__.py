"""The text syntax: from characters to syntax trees and scalar expressions."""
