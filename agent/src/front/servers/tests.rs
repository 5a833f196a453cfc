//! What is owed to `berth-sdk`, and when.
