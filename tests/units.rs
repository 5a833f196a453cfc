//! The environment files of the units: every setting stands there, with what holds without it.

use std::collections::BTreeMap;

use berth_agent::config::CommandLine;
use berth_dev::source_folder;
use clap::{Command, CommandFactory as _};

/// Settings of the one game server that `berth-sdk --local` serves: those of a developer, not of a node.
const LOCAL: [&str; 4] =
    ["AGONES_SDK_GRPC_PORT", "AGONES_SDK_HTTP_PORT", "BERTH_SDK_FILE", "BERTH_SDK_LOCAL"];
/// What an environment file sets, instead of saying what holds without it.
const SET: [&str; 2] = ["BERTH_NODE_NAME", "KUBECONFIG"];

/// Variable and default of every setting of a command.
fn settings(command: &Command) -> BTreeMap<String, String> {
    // Hidden ones are those of another program, and do nothing.
    let shown = command.get_arguments().filter(|one| !one.is_hide_set());
    let named = shown.filter(|one| !["help", "version"].contains(&one.get_id().as_str()));
    named
        .map(|one| {
            let variable = one.get_env().unwrap_or_else(|| panic!("{} has no variable", one.get_id()));
            let defaults: Vec<_> = one.get_default_values().iter().map(|one| one.to_string_lossy()).collect();
            (variable.to_string_lossy().into_owned(), defaults.join(","))
        })
        .collect()
}

/// Variable and value of every line that sets one, or would.
fn documented(file: &str) -> BTreeMap<String, String> {
    let path = source_folder().join("systemd").join(file);
    let text = std::fs::read_to_string(&path).expect("the environment file");
    let is_variable = |name: &str| {
        !name.is_empty()
            && name.chars().all(|one| one.is_ascii_uppercase() || one.is_ascii_digit() || one == '_')
    };
    let lines = text.lines().filter_map(|line| line.trim_start_matches('#').split_once('='));
    let lines = lines.filter(|(name, _)| is_variable(name));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn every_setting_of_a_program_stands_in_the_environment_file_of_its_unit() {
    let agent = CommandLine::command();
    let mut wanted = settings(&agent);
    wanted.extend(settings(agent.find_subcommand("renew-token").expect("a command")));
    let mut found = documented("berth-agent.env");
    for name in SET {
        assert!(wanted.remove(name).is_some() && found.remove(name).is_some(), "{name}");
    }
    assert_eq!(found, wanted, "left: berth-agent.env; right: berth-agent");

    let mut wanted = settings(&berth_sdk::config::Settings::command());
    for name in LOCAL {
        assert!(wanted.remove(name).is_some(), "{name}");
    }
    assert_eq!(documented("berth-sdk.env"), wanted, "left: berth-sdk.env; right: berth-sdk");
}
