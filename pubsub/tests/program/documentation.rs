//! The commands of `docs/fleetiq.md`, run as they stand.

use std::process::Command;

use berth_dev::{Binaries, ControlPlane, ControlPlaneOptions, source_folder};

/// The blocks of commands that are marked as needing nothing but a cluster's API.
fn commands(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            if line == "```sh" {
                blocks.push(block.join("\n"));
            }
        }
    }
    blocks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_walk_through_run() {
    let page = std::fs::read_to_string(source_folder().join("docs/fleetiq.md")).expect("the page");
    let blocks = commands(&page);
    assert!(blocks.len() >= 3, "{blocks:?}");
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await.expect("a control plane");
    let kubeconfig = plane.kubeconfig_path().to_owned();
    tokio::task::spawn_blocking(move || {
        let binaries = Binaries::ensure(&mut |_| {}).expect("kubectl");
        let folder = binaries.kubectl().parent().expect("a folder").to_owned();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        for block in blocks {
            let output = Command::new("sh")
                .args(["-ec", &block])
                .current_dir(source_folder())
                .env("PATH", &path)
                .env("KUBECONFIG", &kubeconfig)
                .output()
                .expect("a shell");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{block}\n{said}");
        }
    })
    .await
    .expect("the commands");
}
