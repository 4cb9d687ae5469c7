//! What two instances must agree on before bytes move.
