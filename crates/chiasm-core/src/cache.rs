//! Who owns which blocks.
