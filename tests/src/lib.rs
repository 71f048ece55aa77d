//! Harness of the cross-process stories.
