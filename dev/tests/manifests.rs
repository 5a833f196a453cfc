//! The manifests as kustomize reads them: one place to choose in, and an example of choosing.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use berth_dev::{Binaries, source_folder};
use serde_json::Value;

fn render(folder: &Path) -> anyhow::Result<Vec<Value>> {
    let binaries = Binaries::ensure(&mut |line| println!("{line}"))?;
    let output = Command::new(binaries.kubectl()).arg("kustomize").arg(folder).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents.map(|document| Ok(serde::Deserialize::deserialize(document)?)).collect()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> anyhow::Result<&'a Value> {
    let found = objects.iter().find(|object| {
        let its_name = object["metadata"]["name"].as_str().unwrap_or_default();
        // Settings carry a hash, so that a change rolls out.
        let matches = its_name == name || kind == "ConfigMap" && its_name.starts_with(&format!("{name}-"));
        object["kind"] == kind && matches
    });
    found.with_context(|| format!("{kind} {name}"))
}

fn pod<'a>(objects: &'a [Value], kind: &str, name: &str) -> anyhow::Result<&'a Value> {
    Ok(&find(objects, kind, name)?["spec"]["template"]["spec"])
}

const PROGRAMS: [(&str, &str); 3] =
    [("Deployment", "berth-brain"), ("DaemonSet", "berth-sdk"), ("DaemonSet", "berth-agent")];

#[test]
fn image_ports_nodes_and_namespaces_are_chosen_in_one_place() -> anyhow::Result<()> {
    let objects = render(&source_folder().join("examples/install"))?;
    for (kind, name) in PROGRAMS {
        let image = &pod(&objects, kind, name)?["containers"][0]["image"];
        assert_eq!(image, &format!("registry.example/{name}:0.1.0"));
    }
    for name in ["berth-sdk", "berth-agent"] {
        assert_eq!(pod(&objects, "DaemonSet", name)?["nodeSelector"]["studio.example/role"], "game");
    }
    let settings = &find(&objects, "ConfigMap", "berth-agent")?["data"];
    assert_eq!(settings["BERTH_PORT_RANGES"], "default=7000-7999,voice=9000-9099");
    assert_eq!(settings["BERTH_LOG"], "info", "what is not chosen stays");
    let lobby = objects.iter().filter(|object| object["metadata"]["namespace"] == "lobby");
    let bindings: Vec<_> =
        lobby.map(|object| object["roleRef"]["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(bindings, ["berth-agent-game-namespace", "berth-brain-game-namespace"]);
    Ok(())
}

#[test]
fn a_pod_template_is_opened_by_a_component() -> anyhow::Result<()> {
    let kept = |objects: &[Value], name: &str| -> anyhow::Result<bool> {
        let definition = find(objects, "CustomResourceDefinition", name)?;
        let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let template = |spec: &Value| spec["properties"]["template"].clone();
        let pod = match name {
            "gameservers.agones.dev" => template(spec),
            _ => template(&template(spec)["properties"]["spec"]),
        };
        let container = &pod["properties"]["spec"]["properties"]["containers"]["items"];
        anyhow::ensure!(container["properties"]["image"]["type"] == "string", "{name} has no pod: {pod}");
        Ok(container["x-kubernetes-preserve-unknown-fields"] == true)
    };
    let folder = tempfile::tempdir()?;
    // kustomize takes no way from the root.
    let up = "../".repeat(folder.path().canonicalize()?.components().count() - 1);
    let manifests = source_folder().join("manifests").canonicalize()?;
    let way = format!("{up}{}", manifests.strip_prefix("/")?.display());
    let overlay = format!(r#"{{"resources": ["{way}"], "components": ["{way}/crds-open"]}}"#);
    std::fs::write(folder.path().join("kustomization.yaml"), overlay)?;
    let (closed, open) = (render(&source_folder().join("manifests"))?, render(folder.path())?);
    for name in ["gameservers", "gameserversets", "fleets"].map(|plural| format!("{plural}.agones.dev")) {
        assert!(!kept(&closed, &name)?, "{name} as it is");
        assert!(kept(&open, &name)?, "{name} by the component");
    }
    assert_eq!(closed.len(), open.len());
    Ok(())
}

#[test]
fn every_definition_and_policy_is_shipped() -> anyhow::Result<()> {
    let text = std::fs::read_to_string(source_folder().join("manifests/kustomization.yaml"))?;
    for folder in ["crds", "policies"] {
        for file in std::fs::read_dir(source_folder().join("manifests").join(folder))? {
            let name = format!("{folder}/{}", file?.file_name().to_string_lossy());
            assert!(text.contains(&format!("- {name}\n")), "{name} is not in manifests/kustomization.yaml");
        }
    }
    Ok(())
}

#[test]
fn a_full_node_s_upgrade_ends_no_session_and_an_agent_s_surge_is_not_held_up() -> anyhow::Result<()> {
    let objects = render(&source_folder().join("manifests"))?;
    let priority = find(&objects, "PriorityClass", "berth")?;
    assert_eq!(priority["preemptionPolicy"], "Never");
    assert!(priority["value"].as_u64() <= Some(1_000_000_000), "kubelet makes room by force above");
    for (kind, name) in PROGRAMS {
        assert_eq!(pod(&objects, kind, name)?["priorityClassName"], "berth", "{name}");
    }
    let agent = &pod(&objects, "DaemonSet", "berth-agent")?["containers"][0];
    assert_eq!(agent.get("ports"), None, "a port on the host's network is one that two agents cannot share");
    Ok(())
}
