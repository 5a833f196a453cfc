//! The publisher against a real Redis, the AWS simulator and a real API server.

mod bad_luck;
mod documentation;
mod groups;
mod leadership;
mod limits;
mod program;
mod publishing;
mod reader;
mod redis;
mod stage;
