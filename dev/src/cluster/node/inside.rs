//! Doing something on a node: running a command in its namespaces, giving its containerd an image.

use std::path::Path;
use std::process::Command;

use super::files::{make_folder, write};
use crate::cluster::configuration::CONTAINERD_SOCKET;
use crate::cluster::{ClusterError, blocking};
use crate::command;
use crate::images::Image;
use crate::instance::Daemon;
use crate::node_spaces;
use crate::places;
use crate::process::Identity;

/// A mark in the node's folder says which archives containerd has taken: its store lives as long as that.
pub(super) async fn import(holder: &Daemon, folder: &Path, image: &Image) -> Result<(), ClusterError> {
    let archive = image.archive().to_string_lossy();
    let mark = folder.join("imported").join(image.archive().file_name().unwrap_or_default());
    if !mark.exists() {
        let arguments =
            ["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import", &archive];
        execute(holder, "ctr", &arguments).await?;
        make_folder(&folder.join("imported"))?;
        write(&mark, "")?;
    }
    Ok(())
}

pub(super) async fn execute(
    holder: &Daemon,
    program: &str,
    arguments: &[&str],
) -> Result<String, ClusterError> {
    let (holder, program) = (holder.identity(), program.to_owned());
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    blocking(move || run_inside(holder, program, arguments)).await
}

pub(super) fn enter_and_run(
    holder: &Daemon,
    program: &str,
    arguments: &[&str],
) -> Result<String, ClusterError> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    run_inside(holder.identity(), program.to_owned(), arguments)
}

fn run_inside(holder: Identity, program: String, arguments: Vec<String>) -> Result<String, ClusterError> {
    let thread = std::thread::spawn(move || {
        node_spaces::enter(holder)?;
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", places::search_path());
        Ok(command::finish(command)?)
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
