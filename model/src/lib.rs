//! What peers compute.
