//! Writes the files that are made from this crate's own words: the CRDs in `manifests/crds/` and `manifests/crds-open/`,
//! and the SDK types in `api/src/generated/`. With `--check` it writes nothing and ends with 1 where a file is stale.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let check = env::args().any(|argument| argument == "--check");
    match wanted().and_then(|files| if check { stale(&files) } else { write(&files) }) {
        Ok(stale) if stale.is_empty() => ExitCode::SUCCESS,
        Ok(stale) => {
            for path in stale {
                eprintln!("stale: {}; run `make generate`", path.display());
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("generate: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Generated {
    path: PathBuf,
    text: String,
}

fn wanted() -> io::Result<Vec<Generated>> {
    let api = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for (folder, crds) in [("crds", berth_api::crds::all()), ("crds-open", berth_api::crds::open())] {
        for crd in crds {
            let yaml = serde_yaml_ng::to_string(&crd.definition).map_err(io::Error::other)?;
            let text = format!("# Generated from api/src/crds by `make generate`; do not edit.\n{yaml}");
            files.push(Generated { path: api.join("../manifests").join(folder).join(crd.file), text });
        }
    }
    for (name, text) in sdk_types(&api.join("proto"))? {
        files.push(Generated { path: api.join("src/generated").join(name), text });
    }
    Ok(files)
}

fn sdk_types(protos: &Path) -> io::Result<Vec<(String, String)>> {
    let descriptors =
        protox::compile(["sdk.proto", "beta.proto", "alpha.proto", "allocation.proto"], [protos])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{error:?}")))?;
    let folder = env::temp_dir().join(format!("berth-generate-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let made = tonic_prost_build::configure().out_dir(&folder).compile_fds(descriptors);
    let files = made.and_then(|()| {
        ["agones.dev.sdk.rs", "agones.dev.sdk.beta.rs", "agones.dev.sdk.alpha.rs", "allocation.rs"]
            .into_iter()
            .map(|name| Ok((name.to_owned(), fs::read_to_string(folder.join(name))?)))
            .collect()
    });
    fs::remove_dir_all(&folder)?;
    files
}

fn stale(files: &[Generated]) -> io::Result<Vec<PathBuf>> {
    Ok(files
        .iter()
        .filter(|file| fs::read_to_string(&file.path).ok().as_deref() != Some(file.text.as_str()))
        .map(|file| file.path.clone())
        .collect())
}

fn write(files: &[Generated]) -> io::Result<Vec<PathBuf>> {
    for file in files {
        if let Some(folder) = file.path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&file.path, &file.text)?;
    }
    Ok(Vec::new())
}
