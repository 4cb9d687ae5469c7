//! Which producers an operator has approved.
