//! The admin endpoints of Berth's programs, and the document of what they show.

use std::collections::BTreeSet;

use berth_dev::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::STEP;

/// Asks for a path and gives back the whole answer, head and all.
///
/// # Errors
/// Nobody answers in time.
pub async fn fetch(address: &str, path: &str) -> anyhow::Result<String> {
    let answer = eventually(STEP, format!("an answer from {address}{path}"), async || {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: admin\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    })
    .await?;
    Ok(answer)
}

/// The families of metrics in a text, counters by the name that their values have.
pub fn families(text: &str) -> BTreeSet<String> {
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    described
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect()
}

/// The metrics that the document lists: the first cell of each row, in backticks.
pub fn documented(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("berth_")).collect()
}

#[cfg(test)]
mod tests {
    use super::{documented, families};

    #[test]
    fn families_and_rows_go_by_the_same_names() {
        let text =
            "# HELP berth_a A.\n# TYPE berth_a counter\nberth_a_total 1\n# TYPE berth_b gauge\n# EOF\n";
        let page = "| metric | labels |\n|---|---|\n| `berth_a_total` | | A |\n| `berth_b` | `x` | B |\n";
        assert_eq!(families(text), documented(page));
    }
}
