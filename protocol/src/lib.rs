//! How peers agree.
