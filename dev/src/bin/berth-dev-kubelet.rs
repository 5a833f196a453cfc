//! `berth-dev-kubelet`: the kubelet of one simulated node.

use std::process::ExitCode;

use berth_dev::simulated::{self, Settings};
use clap::Parser;
use tracing_subscriber::EnvFilter;

// One thread: a node has a hundred pods and little to do for each.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let settings = Settings::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match simulated::run(settings).await {
        Ok(never) => match never {},
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(one) = cause {
                text = format!("{text}: {one}");
                cause = one.source();
            }
            eprintln!("berth-dev-kubelet: {text}");
            ExitCode::FAILURE
        }
    }
}
