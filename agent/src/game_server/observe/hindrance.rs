//! What kubelet says keeps a game from running. Pure.

use berth_api::game_server::GameServer;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::endings::game_status;
use crate::pods::phase;

/// What kubelet says keeps the game from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::game_server) enum Hindrance {
    /// An image cannot be had.
    Image {
        /// What kubelet says.
        message: String,
    },
    /// A container cannot be made from what its author wrote.
    Container {
        /// What kubelet says.
        message: String,
    },
    /// A container ends again and again.
    Crashes {
        /// How often it was started anew, and how it ended last.
        message: String,
    },
    /// Nothing is known but that the game does not run.
    NotStarted {
        /// What kubelet says.
        message: String,
    },
}

/// What kubelet says of the containers that have to run before the game does, of the game's own, and of those without which
/// the pod does not run.
pub(super) fn hindrance(server: &GameServer, pod: &Pod) -> Option<Hindrance> {
    let status = pod.status.as_ref()?;
    let is_pending = match phase(pod) {
        Some("Pending") => true,
        Some("Running") => false,
        Some(_) | None => return None,
    };
    let init = status.init_container_statuses.iter().flatten();
    let game = game_status(server, pod);
    let all: Vec<&ContainerStatus> = init.chain(game).collect();
    if let Some(found) = all.iter().find_map(|one| named(one)) {
        return Some(found);
    }
    let runs = game.and_then(|game| game.state.as_ref()).is_some_and(|state| state.running.is_some());
    if runs {
        let mut others = status.container_statuses.iter().flatten().filter(|_| is_pending);
        return others
            .find_map(|one| named(one).or_else(|| Some(Hindrance::NotStarted { message: waits(one)? })));
    }
    let waits = all.iter().find_map(|one| waits(one));
    let runs_init = all.iter().find(|one| {
        let state = one.state.as_ref();
        Some(one.name.as_str()) != game.map(|game| game.name.as_str())
            && one.started != Some(true)
            && state.is_some_and(|state| state.running.is_some())
    });
    let message = match (runs_init, waits) {
        (Some(one), _) => format!("init container {} has not ended", one.name),
        (None, Some(waits)) => waits,
        (None, None) => "kubelet says nothing of its containers".to_owned(),
    };
    Some(Hindrance::NotStarted { message })
}

fn waits(one: &ContainerStatus) -> Option<String> {
    let waiting = one.state.as_ref()?.waiting.as_ref()?;
    Some(format!("container {} waits: {}", one.name, waiting.reason.as_deref().unwrap_or("no reason")))
}

fn named(one: &ContainerStatus) -> Option<Hindrance> {
    let waiting = one.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let told = || {
        let message = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or_default();
        format!("container {}: {reason}: {message}", one.name)
    };
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "InvalidImageName"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => {
            return Some(Hindrance::Image { message: told() });
        }
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => {
            return Some(Hindrance::Container { message: told() });
        }
        _ => {}
    }
    // Also while it runs in between: a crash that is told and taken back at each turn would be a write at each turn.
    (one.restart_count > 0).then(|| {
        let last = one.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let last = last.map(|last| format!(", last after exit code {}", last.exit_code)).unwrap_or_default();
        let message = format!("container {} was started anew {} times{last}", one.name, one.restart_count);
        Hindrance::Crashes { message }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_api::game_server::GameServerSpec;
    use serde_json::{Value, json};

    use super::*;

    fn container(name: &str, restarts: i64, state: Value) -> Value {
        json!({
            "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
            "lastState": { "terminated": { "exitCode": 7 } }
        })
    }

    fn waiting(reason: &str) -> Value {
        json!({ "waiting": { "reason": reason, "message": "m" } })
    }

    fn running() -> Value {
        json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
    }

    #[test]
    fn kubelets_words_are_told_apart() {
        let pending = |init: Vec<Value>, main: Value| json!({ "phase": "Pending", "initContainerStatuses": init, "containerStatuses": [main] });
        let message = |text: &str| text.to_owned();
        let table = [
            (
                "nothing yet",
                json!({ "phase": "Pending" }),
                Some(Hindrance::NotStarted { message: message("kubelet says nothing of its containers") }),
            ),
            (
                "on its way",
                pending(vec![], container("main", 0, waiting("ContainerCreating"))),
                Some(Hindrance::NotStarted { message: message("container main waits: ContainerCreating") }),
            ),
            (
                "no image",
                pending(vec![], container("main", 0, waiting("ImagePullBackOff"))),
                Some(Hindrance::Image { message: message("container main: ImagePullBackOff: m") }),
            ),
            (
                "no image for what runs before",
                pending(
                    vec![container("prepare", 0, waiting("ErrImagePull"))],
                    container("main", 0, waiting("PodInitializing")),
                ),
                Some(Hindrance::Image { message: message("container prepare: ErrImagePull: m") }),
            ),
            (
                "bad configuration",
                pending(vec![], container("main", 0, waiting("CreateContainerConfigError"))),
                Some(Hindrance::Container {
                    message: message("container main: CreateContainerConfigError: m"),
                }),
            ),
            (
                "crashes, waiting",
                pending(vec![], container("main", 3, waiting("CrashLoopBackOff"))),
                Some(Hindrance::Crashes {
                    message: message("container main was started anew 3 times, last after exit code 7"),
                }),
            ),
            (
                "crashes, running for now",
                pending(vec![], container("main", 3, running())),
                Some(Hindrance::Crashes {
                    message: message("container main was started anew 3 times, last after exit code 7"),
                }),
            ),
            (
                "what runs before it has not ended",
                pending(
                    vec![container("prepare", 0, running())],
                    container("main", 0, waiting("PodInitializing")),
                ),
                Some(Hindrance::NotStarted { message: message("init container prepare has not ended") }),
            ),
            (
                "it runs",
                json!({ "phase": "Running", "containerStatuses": [container("main", 0, running())] }),
                None,
            ),
            (
                "it runs, and another container of its pod does not",
                json!({ "phase": "Pending", "containerStatuses": [
                    container("main", 0, running()), container("logs", 0, waiting("ContainerCreating")),
                ] }),
                Some(Hindrance::NotStarted { message: message("container logs waits: ContainerCreating") }),
            ),
            (
                "it runs, and another container of its pod has no image",
                json!({ "phase": "Pending", "containerStatuses": [
                    container("logs", 0, waiting("ErrImagePull")), container("main", 0, running()),
                ] }),
                Some(Hindrance::Image { message: message("container logs: ErrImagePull: m") }),
            ),
            ("it has failed", json!({ "phase": "Failed" }), None),
        ];
        let mut server = GameServer::new("gs", GameServerSpec::default());
        server.metadata.annotations = Some(BTreeMap::new());
        for (name, status, expected) in table {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": { "annotations": { "agones.dev/container": "main" } },
                "status": status
            }))
            .expect("a pod");
            assert_eq!(hindrance(&server, &pod), expected, "{name}");
        }
    }
}
