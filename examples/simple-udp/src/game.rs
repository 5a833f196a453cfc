//! What the game does about a command: an SDK call, an answer, and perhaps an end.

use std::time::{SystemTime, UNIX_EPOCH};

use berth_api::sdk::beta::{Counter, CounterUpdateRequest};
use tokio::sync::{mpsc, watch};

use crate::command::{Command, CounterCommand, ListCommand, Pair, PlayersCommand, parse};
use crate::health::Order;
use crate::sdk::{Sdk, SdkError};

/// The key of a label or annotation that was given none.
const TIMESTAMP: &str = "timestamp";

/// How the game ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As asked.
    Exit,
    /// With this exit code, as a game that crashed.
    Crash(u8),
}

/// What goes back to the sender, and what happens once it is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) then: Option<Ending>,
}

impl Answer {
    fn stay(text: String) -> Self {
        Self { text, then: None }
    }

    /// A refusal that has nothing to do with the command itself.
    pub(crate) fn error(what: &str) -> Self {
        Self::stay(format!("ERROR: {what}\n"))
    }
}

/// The running game, shared by everything that takes commands.
#[derive(Debug)]
pub(crate) struct Game {
    pub(crate) sdk: Sdk,
    /// Orders to the task that pings. When it is full, a ping is under way anyhow.
    pub(crate) health: mpsc::Sender<Order>,
    /// Whether somebody wants the watch.
    pub(crate) watching: watch::Sender<bool>,
    /// Whether Ready was called.
    pub(crate) ready: watch::Sender<bool>,
}

/// The answer to a line that needs no game: an echo, or how a command is used.
pub(crate) fn answer_at_once(line: &str) -> Result<Answer, Command> {
    match parse(line) {
        Ok(Command::Echo) => Ok(Answer::stay(acknowledged(line))),
        Ok(command) => Err(command),
        Err(usage) => Ok(Answer::error(&usage.to_string())),
    }
}

fn acknowledged(line: &str) -> String {
    format!("ACK: {line}\n")
}

impl Game {
    /// Does what the line asks for.
    pub(crate) async fn answer(&self, line: &str) -> Answer {
        match answer_at_once(line) {
            Ok(answer) => answer,
            Err(command) => self.obey(line, command).await,
        }
    }

    /// Does a command that [`answer_at_once`] found in the line.
    pub(crate) async fn obey(&self, line: &str, command: Command) -> Answer {
        println!("command {line}");
        let then = match command {
            Command::Exit => Some(Ending::Exit),
            Command::Crash(code) => Some(Ending::Crash(code)),
            _ => None,
        };
        match self.perform(command).await {
            Ok(None) => Answer { text: acknowledged(line), then },
            Ok(Some(text)) => Answer { text: format!("{text}\n"), then },
            Err(error) => {
                println!("command failed error={error}");
                Answer::error(&error.to_string())
            }
        }
    }

    /// Calls Ready, and lets everybody know who counts from there.
    pub(crate) async fn call_ready(&self) -> Result<(), SdkError> {
        self.sdk.ready().await?;
        println!("ready called");
        self.ready.send_replace(true);
        Ok(())
    }

    async fn perform(&self, command: Command) -> Result<Option<String>, SdkError> {
        match command {
            Command::Echo | Command::Crash(_) => {}
            Command::Exit => self.sdk.shutdown().await?,
            Command::Unhealthy => self.order(Order::Stop).await,
            Command::Health => self.order(Order::Ping).await,
            Command::GameServer => {
                let seen = self.sdk.game_server().await?;
                return Ok(Some(format!("NAME: {}", seen.object_meta.unwrap_or_default().name)));
            }
            Command::Ready => self.call_ready().await?,
            Command::Allocate => self.sdk.allocate().await?,
            Command::Reserve(time) => self.sdk.reserve(time).await?,
            Command::Watch => {
                self.watching.send_replace(true);
            }
            Command::Label(pair) => {
                let Pair { key, value } = pair.unwrap_or_else(timestamp);
                self.sdk.set_label(key, value).await?;
            }
            Command::Annotation(pair) => {
                let Pair { key, value } = pair.unwrap_or_else(timestamp);
                self.sdk.set_annotation(key, value).await?;
            }
            Command::Counter(name, command) => return self.counter(name, command).await.map(Some),
            Command::List(name, command) => return self.list(name, command).await.map(Some),
            Command::Players(command) => return self.players(command).await.map(Some),
        }
        Ok(None)
    }

    /// The pinging task outlives every command, so there is always somebody to take the order.
    async fn order(&self, order: Order) {
        let _ = self.health.send(order).await;
    }

    async fn counter(&self, name: String, command: CounterCommand) -> Result<String, SdkError> {
        let mut update = CounterUpdateRequest { name: name.clone(), ..CounterUpdateRequest::default() };
        match command {
            CounterCommand::Count => return self.sdk.counter(name).await.map(|counter| count(&counter)),
            CounterCommand::Capacity => {
                return self.sdk.counter(name).await.map(|counter| capacity(&counter));
            }
            CounterCommand::Add(amount) => update.count_diff = amount,
            CounterCommand::SetCount(amount) => update.count = Some(amount),
            CounterCommand::SetCapacity(amount) => {
                update.capacity = Some(amount);
                return self.sdk.update_counter(update).await.map(|counter| capacity(&counter));
            }
        }
        self.sdk.update_counter(update).await.map(|counter| count(&counter))
    }

    async fn list(&self, name: String, command: ListCommand) -> Result<String, SdkError> {
        let list = match command {
            ListCommand::Length => return Ok(format!("LENGTH: {}", self.sdk.list(name).await?.values.len())),
            ListCommand::Capacity => return Ok(format!("CAPACITY: {}", self.sdk.list(name).await?.capacity)),
            ListCommand::Contains(value) => {
                return Ok(format!("FOUND: {}", self.sdk.list(name).await?.values.contains(&value)));
            }
            ListCommand::SetCapacity(amount) => {
                let list = self.sdk.set_list_capacity(name, amount).await?;
                return Ok(format!("CAPACITY: {}", list.capacity));
            }
            ListCommand::Values => self.sdk.list(name).await?,
            ListCommand::Append(value) => self.sdk.append(name, value).await?,
            ListCommand::Delete(value) => self.sdk.delete(name, value).await?,
        };
        Ok(format!("VALUES: {}", list.values.join(",")))
    }

    async fn players(&self, command: PlayersCommand) -> Result<String, SdkError> {
        Ok(match command {
            PlayersCommand::Connect(id) => format!("CHANGED: {}", self.sdk.connect_player(id).await?),
            PlayersCommand::Disconnect(id) => format!("CHANGED: {}", self.sdk.disconnect_player(id).await?),
            PlayersCommand::IsConnected(id) => {
                format!("CONNECTED: {}", self.sdk.is_player_connected(id).await?)
            }
            PlayersCommand::List => format!("PLAYERS: {}", self.sdk.players().await?.join(",")),
            PlayersCommand::Count => format!("COUNT: {}", self.sdk.player_count().await?),
            PlayersCommand::Capacity => format!("CAPACITY: {}", self.sdk.player_capacity().await?),
            PlayersCommand::SetCapacity(amount) => {
                self.sdk.set_player_capacity(amount).await?;
                format!("CAPACITY: {amount}")
            }
        })
    }
}

fn count(counter: &Counter) -> String {
    format!("COUNTER: {}", counter.count)
}

fn capacity(counter: &Counter) -> String {
    format!("CAPACITY: {}", counter.capacity)
}

fn timestamp() -> Pair {
    // A clock before 1970 gives 0: the value only has to change when it is set again.
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Pair { key: TIMESTAMP.to_owned(), value: seconds.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_and_a_usage_need_no_game() {
        assert_eq!(answer_at_once("hello"), Ok(Answer::stay("ACK: hello\n".to_owned())));
        assert_eq!(answer_at_once("LABEL x"), Ok(Answer::error("usage: LABEL [key value]")));
        assert_eq!(answer_at_once("READY"), Err(Command::Ready));
    }
}
