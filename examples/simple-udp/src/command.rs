//! What a line of text asks for. Pure: text in, command out.
//!
//! The first word decides, and its case matters. A line whose first word is no command is only echoed; a command with
//! the wrong arguments is told how it is used.

use std::time::Duration;

use crate::settings::duration;

/// How long RESERVE lasts when it is not told.
const DEFAULT_RESERVATION: Duration = Duration::from_secs(10);
/// The exit code of CRASH when it is not told.
const DEFAULT_CRASH: u8 = 1;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Say it back.
    Echo,
    /// Call Shutdown and end.
    Exit,
    /// End at once with this exit code.
    Crash(u8),
    /// Stop sending Health.
    Unhealthy,
    /// Send one Health ping now.
    Health,
    /// Say the game server's name.
    GameServer,
    /// Call Ready.
    Ready,
    /// Call Allocate.
    Allocate,
    /// Call Reserve.
    Reserve(Duration),
    /// Begin to log every change of the game server.
    Watch,
    /// Set a label; without a pair, a timestamp.
    Label(Option<Pair>),
    /// Set an annotation; without a pair, a timestamp.
    Annotation(Option<Pair>),
    /// Something with a counter.
    Counter(String, CounterCommand),
    /// Something with a list.
    List(String, ListCommand),
    /// Something with players.
    Players(PlayersCommand),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// What to do with a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterCommand {
    Count,
    Capacity,
    Add(i64),
    SetCount(i64),
    SetCapacity(i64),
}

/// What to do with a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListCommand {
    Values,
    Length,
    Capacity,
    SetCapacity(i64),
    Contains(String),
    Append(String),
    Delete(String),
}

/// What to do with the players.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlayersCommand {
    Connect(String),
    Disconnect(String),
    IsConnected(String),
    List,
    Count,
    Capacity,
    SetCapacity(i64),
}

/// A command that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("usage: {0}")]
pub(crate) struct Usage(&'static str);

/// What the line asks for.
///
/// # Errors
/// How the command is used, when its arguments do not fit.
pub(crate) fn parse(line: &str) -> Result<Command, Usage> {
    let mut words = line.split_whitespace();
    let Some(name) = words.next() else { return Ok(Command::Echo) };
    let arguments: Vec<&str> = words.collect();
    match name {
        "EXIT" => bare(&arguments, "EXIT", Command::Exit),
        "UNHEALTHY" => bare(&arguments, "UNHEALTHY", Command::Unhealthy),
        "HEALTH" => bare(&arguments, "HEALTH", Command::Health),
        "GAMESERVER" => bare(&arguments, "GAMESERVER", Command::GameServer),
        "READY" => bare(&arguments, "READY", Command::Ready),
        "ALLOCATE" => bare(&arguments, "ALLOCATE", Command::Allocate),
        "WATCH" => bare(&arguments, "WATCH", Command::Watch),
        "RESERVE" => match arguments[..] {
            [] => Ok(Command::Reserve(DEFAULT_RESERVATION)),
            [text] => {
                duration(text).map(Command::Reserve).map_err(|_| Usage("RESERVE [duration, such as 10s]"))
            }
            _ => Err(Usage("RESERVE [duration, such as 10s]")),
        },
        "CRASH" => match arguments[..] {
            [] => Ok(Command::Crash(DEFAULT_CRASH)),
            [code] => code.parse().map(Command::Crash).map_err(|_| Usage("CRASH [exit code, 0 to 255]")),
            _ => Err(Usage("CRASH [exit code, 0 to 255]")),
        },
        "LABEL" => pair(&arguments).map(Command::Label).ok_or(Usage("LABEL [key value]")),
        "ANNOTATION" => pair(&arguments).map(Command::Annotation).ok_or(Usage("ANNOTATION [key value]")),
        _ => counter(name, &arguments)
            .or_else(|| list(name, &arguments))
            .or_else(|| players(name, &arguments))
            .unwrap_or(Ok(Command::Echo)),
    }
}

fn bare(arguments: &[&str], usage: &'static str, command: Command) -> Result<Command, Usage> {
    if arguments.is_empty() { Ok(command) } else { Err(Usage(usage)) }
}

/// No arguments, or a key and a value that may have spaces; `None` when only the key is there.
fn pair(arguments: &[&str]) -> Option<Option<Pair>> {
    match arguments {
        [] => Some(None),
        [_] => None,
        [key, value @ ..] => Some(Some(Pair { key: (*key).to_owned(), value: value.join(" ") })),
    }
}

fn counter(name: &str, arguments: &[&str]) -> Option<Result<Command, Usage>> {
    let parsed = match name {
        "GET_COUNTER" | "GET_COUNTER_COUNT" => {
            only_name(arguments, "GET_COUNTER_COUNT name").map(|name| (name, CounterCommand::Count))
        }
        "GET_COUNTER_CAPACITY" => {
            only_name(arguments, "GET_COUNTER_CAPACITY name").map(|name| (name, CounterCommand::Capacity))
        }
        "INCREMENT_COUNTER" => amount(arguments, "INCREMENT_COUNTER name amount")
            .map(|(name, amount)| (name, CounterCommand::Add(amount))),
        "DECREMENT_COUNTER" => amount(arguments, "DECREMENT_COUNTER name amount")
            .map(|(name, amount)| (name, CounterCommand::Add(-amount))),
        "SET_COUNTER_COUNT" => amount(arguments, "SET_COUNTER_COUNT name count")
            .map(|(name, count)| (name, CounterCommand::SetCount(count))),
        "SET_COUNTER_CAPACITY" => amount(arguments, "SET_COUNTER_CAPACITY name capacity")
            .map(|(name, capacity)| (name, CounterCommand::SetCapacity(capacity))),
        _ => return None,
    };
    Some(parsed.map(|(name, command)| Command::Counter(name, command)))
}

fn list(name: &str, arguments: &[&str]) -> Option<Result<Command, Usage>> {
    let parsed = match name {
        "GET_LIST_VALUES" => {
            only_name(arguments, "GET_LIST_VALUES name").map(|name| (name, ListCommand::Values))
        }
        "GET_LIST_LENGTH" => {
            only_name(arguments, "GET_LIST_LENGTH name").map(|name| (name, ListCommand::Length))
        }
        "GET_LIST_CAPACITY" => {
            only_name(arguments, "GET_LIST_CAPACITY name").map(|name| (name, ListCommand::Capacity))
        }
        "SET_LIST_CAPACITY" => amount(arguments, "SET_LIST_CAPACITY name capacity")
            .map(|(name, capacity)| (name, ListCommand::SetCapacity(capacity))),
        "LIST_CONTAINS" => value(arguments, "LIST_CONTAINS name value")
            .map(|(name, value)| (name, ListCommand::Contains(value))),
        "APPEND_LIST_VALUE" => value(arguments, "APPEND_LIST_VALUE name value")
            .map(|(name, value)| (name, ListCommand::Append(value))),
        "DELETE_LIST_VALUE" => value(arguments, "DELETE_LIST_VALUE name value")
            .map(|(name, value)| (name, ListCommand::Delete(value))),
        _ => return None,
    };
    Some(parsed.map(|(name, command)| Command::List(name, command)))
}

fn players(name: &str, arguments: &[&str]) -> Option<Result<Command, Usage>> {
    let parsed = match name {
        "PLAYER_CONNECT" => only_name(arguments, "PLAYER_CONNECT id").map(PlayersCommand::Connect),
        "PLAYER_DISCONNECT" => only_name(arguments, "PLAYER_DISCONNECT id").map(PlayersCommand::Disconnect),
        "PLAYER_CONNECTED" => only_name(arguments, "PLAYER_CONNECTED id").map(PlayersCommand::IsConnected),
        "GET_PLAYERS" => nothing(arguments, "GET_PLAYERS").map(|()| PlayersCommand::List),
        "PLAYER_COUNT" => nothing(arguments, "PLAYER_COUNT").map(|()| PlayersCommand::Count),
        "PLAYER_CAPACITY" => match arguments {
            [] => Ok(PlayersCommand::Capacity),
            [capacity] => {
                whole(capacity).map(PlayersCommand::SetCapacity).ok_or(Usage("PLAYER_CAPACITY [capacity]"))
            }
            _ => Err(Usage("PLAYER_CAPACITY [capacity]")),
        },
        _ => return None,
    };
    Some(parsed.map(Command::Players))
}

fn nothing(arguments: &[&str], usage: &'static str) -> Result<(), Usage> {
    if arguments.is_empty() { Ok(()) } else { Err(Usage(usage)) }
}

fn only_name(arguments: &[&str], usage: &'static str) -> Result<String, Usage> {
    match arguments {
        [name] => Ok((*name).to_owned()),
        _ => Err(Usage(usage)),
    }
}

fn amount(arguments: &[&str], usage: &'static str) -> Result<(String, i64), Usage> {
    match arguments {
        [name, amount] => whole(amount).map(|amount| ((*name).to_owned(), amount)).ok_or(Usage(usage)),
        _ => Err(Usage(usage)),
    }
}

fn value(arguments: &[&str], usage: &'static str) -> Result<(String, String), Usage> {
    match arguments {
        [name, value @ ..] if !value.is_empty() => Ok(((*name).to_owned(), value.join(" "))),
        _ => Err(Usage(usage)),
    }
}

/// A whole number that can be negated.
fn whole(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|number| number.checked_neg().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    fn timestamped(key: &str, value: &str) -> Option<Pair> {
        Some(Pair { key: text(key), value: text(value) })
    }

    #[test]
    fn lines_and_what_they_ask_for() {
        use CounterCommand as Counter;
        use ListCommand as List;
        use PlayersCommand as Players;
        let cases = [
            ("", Command::Echo),
            ("   ", Command::Echo),
            ("hello there", Command::Echo),
            ("exit", Command::Echo),
            ("EXITS", Command::Echo),
            ("say EXIT", Command::Echo),
            ("EXIT", Command::Exit),
            ("  EXIT \r\n", Command::Exit),
            ("UNHEALTHY", Command::Unhealthy),
            ("HEALTH", Command::Health),
            ("GAMESERVER", Command::GameServer),
            ("READY", Command::Ready),
            ("ALLOCATE", Command::Allocate),
            ("WATCH", Command::Watch),
            ("RESERVE", Command::Reserve(Duration::from_secs(10))),
            ("RESERVE 1m30s", Command::Reserve(Duration::from_secs(90))),
            ("RESERVE 0", Command::Reserve(Duration::ZERO)),
            ("CRASH", Command::Crash(1)),
            ("CRASH 137", Command::Crash(137)),
            ("LABEL", Command::Label(None)),
            ("LABEL map dunes", Command::Label(timestamped("map", "dunes"))),
            ("ANNOTATION", Command::Annotation(None)),
            ("ANNOTATION note a b  c", Command::Annotation(timestamped("note", "a b c"))),
            ("GET_COUNTER rooms", Command::Counter(text("rooms"), Counter::Count)),
            ("GET_COUNTER_COUNT rooms", Command::Counter(text("rooms"), Counter::Count)),
            ("GET_COUNTER_CAPACITY rooms", Command::Counter(text("rooms"), Counter::Capacity)),
            ("INCREMENT_COUNTER rooms 3", Command::Counter(text("rooms"), Counter::Add(3))),
            ("DECREMENT_COUNTER rooms 3", Command::Counter(text("rooms"), Counter::Add(-3))),
            ("SET_COUNTER_COUNT rooms 5", Command::Counter(text("rooms"), Counter::SetCount(5))),
            ("SET_COUNTER_CAPACITY rooms 9", Command::Counter(text("rooms"), Counter::SetCapacity(9))),
            ("GET_LIST_VALUES players", Command::List(text("players"), List::Values)),
            ("GET_LIST_LENGTH players", Command::List(text("players"), List::Length)),
            ("GET_LIST_CAPACITY players", Command::List(text("players"), List::Capacity)),
            ("SET_LIST_CAPACITY players 8", Command::List(text("players"), List::SetCapacity(8))),
            ("LIST_CONTAINS players ann", Command::List(text("players"), List::Contains(text("ann")))),
            ("APPEND_LIST_VALUE players ann", Command::List(text("players"), List::Append(text("ann")))),
            ("DELETE_LIST_VALUE players ann", Command::List(text("players"), List::Delete(text("ann")))),
            ("PLAYER_CONNECT ann", Command::Players(Players::Connect(text("ann")))),
            ("PLAYER_DISCONNECT ann", Command::Players(Players::Disconnect(text("ann")))),
            ("PLAYER_CONNECTED ann", Command::Players(Players::IsConnected(text("ann")))),
            ("GET_PLAYERS", Command::Players(Players::List)),
            ("PLAYER_COUNT", Command::Players(Players::Count)),
            ("PLAYER_CAPACITY", Command::Players(Players::Capacity)),
            ("PLAYER_CAPACITY 16", Command::Players(Players::SetCapacity(16))),
        ];
        for (line, command) in cases {
            assert_eq!(parse(line), Ok(command), "{line:?}");
        }
    }

    #[test]
    fn wrong_arguments_are_told_the_usage() {
        let cases = [
            ("EXIT now", "EXIT"),
            ("RESERVE soon", "RESERVE [duration, such as 10s]"),
            ("RESERVE -5s", "RESERVE [duration, such as 10s]"),
            ("RESERVE 1s 2s", "RESERVE [duration, such as 10s]"),
            ("CRASH 256", "CRASH [exit code, 0 to 255]"),
            ("CRASH hard", "CRASH [exit code, 0 to 255]"),
            ("LABEL map", "LABEL [key value]"),
            ("ANNOTATION note", "ANNOTATION [key value]"),
            ("GET_COUNTER", "GET_COUNTER_COUNT name"),
            ("INCREMENT_COUNTER rooms", "INCREMENT_COUNTER name amount"),
            ("INCREMENT_COUNTER rooms many", "INCREMENT_COUNTER name amount"),
            ("DECREMENT_COUNTER rooms -9223372036854775808", "DECREMENT_COUNTER name amount"),
            ("APPEND_LIST_VALUE players", "APPEND_LIST_VALUE name value"),
            ("PLAYER_CONNECT", "PLAYER_CONNECT id"),
            ("PLAYER_CAPACITY lots", "PLAYER_CAPACITY [capacity]"),
            ("GET_PLAYERS all", "GET_PLAYERS"),
        ];
        for (line, usage) in cases {
            assert_eq!(parse(line), Err(Usage(usage)), "{line:?}");
        }
    }
}
