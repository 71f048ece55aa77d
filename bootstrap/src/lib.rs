//! How a peer enters the network.
