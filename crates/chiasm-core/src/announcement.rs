//! One value of `ec_transfer_params`.
