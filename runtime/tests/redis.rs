//! A connection to a real Redis: refused without the right secret, then commands, a message, and its end.

use std::time::Duration;

use berth_dev::{Instance, Redis, RedisOptions};
use berth_runtime::redis_connection::{Command, RedisConnection, Reply};
use berth_runtime::redis_url::{RedisFlags, RedisServer};

const LIMIT: Duration = Duration::from_secs(60);

fn server(port: u16, secret: Option<&str>) -> RedisServer {
    let redis_url = Some(format!("127.0.0.1:{port}/2").into());
    let flags = RedisFlags { redis_url, redis_password: secret.map(Into::into), ..RedisFlags::default() };
    flags.server().expect("a URL").expect("a server")
}

#[tokio::test]
async fn commands_and_messages_pass_once_the_secret_is_right() {
    let instance = Instance::create("redis-connection").expect("an instance");
    let arguments = ["--requirepass", "s#cret"].map(str::to_owned).into();
    let options = RedisOptions { arguments, ..RedisOptions::default() };
    let redis = Redis::start(&instance, "redis", options).await.expect("Redis");
    for secret in [None, Some("wrong")] {
        let refused = RedisConnection::open(&server(redis.port(), secret)).await.expect_err("no secret");
        assert!(refused.is_login(), "{refused:?}");
    }
    let right = server(redis.port(), Some("s#cret"));
    let mut speaker = RedisConnection::open(&right).await.expect("a connection");
    let mut listener = RedisConnection::open(&right).await.expect("a connection");
    let bulk = |text: &str| Reply::Bulk(Some(text.as_bytes().to_vec()));
    listener.send(&[Command::new("SUBSCRIBE").with("i-1")]).await.expect("sent");
    let confirmed = Reply::Array(Some(vec![bulk("subscribe"), bulk("i-1"), Reply::Integer(1)]));
    assert_eq!(listener.receive().await.expect("a reply"), confirmed);
    let commands = [
        Command::new("SET").with("key").with("value").with("PX").with("180000"),
        Command::new("PUBLISH").with("i-1").with("hello"),
        Command::new("GET").with("key"),
    ];
    let replies = speaker.call(&commands, LIMIT).await.expect("replies");
    assert_eq!(replies, [Reply::Status("OK".to_owned()), Reply::Integer(1), bulk("value")]);
    let message = Reply::Array(Some(vec![bulk("message"), bulk("i-1"), bulk("hello")]));
    assert_eq!(listener.receive().await.expect("a message"), message);
    redis.daemon().kill().await.expect("an end");
    assert!(speaker.call(&[Command::new("PING")], LIMIT).await.is_err(), "nobody is there any more");
}
