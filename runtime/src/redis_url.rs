//! Where a Redis server is, as people write it: `REDIS_URL` in its forms, and the settings beside it. No connections.
//!
//! A value without `://` is `HOST`, `HOST:PORT` or `HOST:PORT/DATABASE`; with it, it is a URL. Tokens may hold letters
//! that no URL takes, so that name and secret can be given beside it, and then those count. Nothing here shows a secret.

use std::fmt;
use std::io;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::exit::BadConfiguration;

/// Redis's own port.
const PORT: u16 = 6379;

/// Flags and environment of a Redis server.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RedisFlags {
    /// The Redis server: HOST, HOST:PORT, HOST:PORT/DATABASE, or a URL (redis, rediss, valkey, valkeys)
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<Secret>,
    /// Name of the user, instead of the URL's
    #[arg(long, env = "REDIS_USERNAME")]
    pub redis_username: Option<String>,
    /// Password or token, instead of the URL's
    #[arg(long, env = "REDIS_PASSWORD", hide_env_values = true)]
    pub redis_password: Option<Secret>,
    /// File that holds it, read again at each connection
    #[arg(long, env = "REDIS_PASSWORD_FILE")]
    pub redis_password_file: Option<PathBuf>,
    /// Certificates of the authorities to trust, as PEM, instead of the system's
    #[arg(long, env = "REDIS_CA_FILE")]
    pub redis_ca_file: Option<PathBuf>,
    /// Name that the server's certificate is made for, where it is not the host's
    #[arg(long, env = "REDIS_TLS_SERVER_NAME")]
    pub redis_tls_server_name: Option<String>,
}

/// Something that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// What the server asks for before it talks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// Nothing.
    None,
    /// This.
    Given(Secret),
    /// What stands in a file at the moment of connecting.
    File(PathBuf),
}

impl Password {
    /// The secret as it is now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> io::Result<Option<Secret>> {
        Ok(match self {
            Self::None => None,
            Self::Given(secret) => Some(secret.clone()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path)?;
                Some(Secret(text.trim_end_matches(['\n', '\r']).to_owned()))
            }
        })
    }
}

/// How the connection is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Without TLS.
    Plain,
    /// With it.
    Tls {
        /// Name that the certificate is made for, where it is not the host's.
        server_name: Option<String>,
        /// The authorities to trust, where they are not the system's.
        ca_file: Option<PathBuf>,
    },
}

/// A Redis server, and how to talk to it. Shown without name and secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisServer {
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database that keys are in.
    pub database: u32,
    /// How the connection is made.
    pub transport: Transport,
    /// The user, where it is not the default one.
    pub username: Option<String>,
    /// What it asks for.
    pub password: Password,
}

impl fmt::Display for RedisServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, database, transport, username: _, password: _ } = self;
        let scheme = match transport {
            Transport::Plain => "redis",
            Transport::Tls { .. } => "rediss",
        };
        if host.contains(':') {
            write!(formatter, "{scheme}://[{host}]:{port}/{database}")
        } else {
            write!(formatter, "{scheme}://{host}:{port}/{database}")
        }
    }
}

impl RedisFlags {
    /// The server; none where none is named. A variable that is set to nothing is not set.
    ///
    /// # Errors
    /// What makes no sense, without any secret.
    pub fn server(self) -> Result<Option<RedisServer>, BadConfiguration> {
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let path = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        let hidden = |secret: Option<Secret>| secret.filter(|secret| !secret.reveal().is_empty());
        let Some(url) = hidden(self.redis_url) else { return Ok(None) };
        let mut server = parse(url.reveal().trim()).map_err(|what| {
            BadConfiguration::new(format!(
                "REDIS_URL {what}; it is HOST, HOST:PORT, HOST:PORT/DATABASE or rediss://USER:SECRET@HOST:PORT/DATABASE"
            ))
        })?;
        if let Some(username) = said(self.redis_username) {
            server.username = Some(username);
        }
        match (hidden(self.redis_password), path(self.redis_password_file)) {
            (Some(_), Some(_)) => {
                return Err(BadConfiguration::new(
                    "REDIS_PASSWORD and REDIS_PASSWORD_FILE are both set; set one",
                ));
            }
            (Some(secret), None) => server.password = Password::Given(secret),
            (None, Some(file)) => server.password = Password::File(file),
            (None, None) => {}
        }
        let (ca, name) = (path(self.redis_ca_file), said(self.redis_tls_server_name));
        match &mut server.transport {
            Transport::Tls { server_name, ca_file } => (*server_name, *ca_file) = (name, ca),
            Transport::Plain if ca.is_some() || name.is_some() => {
                return Err(BadConfiguration::new(
                    "REDIS_CA_FILE and REDIS_TLS_SERVER_NAME need TLS; begin REDIS_URL with rediss://",
                ));
            }
            Transport::Plain => {}
        }
        if server.username.is_some() && server.password == Password::None {
            return Err(BadConfiguration::new(
                "a Redis user without a password is of no use; set REDIS_PASSWORD",
            ));
        }
        Ok(Some(server))
    }
}

/// Reads a value of `REDIS_URL`. What is wrong never repeats it, since it may hold a secret.
fn parse(text: &str) -> Result<RedisServer, &'static str> {
    // By `://` alone: to a parser of URLs, `cache.example.com:6379` has the scheme `cache.example.com`.
    let (scheme, rest) = text.split_once("://").unwrap_or(("redis", text));
    let transport = match scheme {
        "redis" | "valkey" => Transport::Plain,
        "rediss" | "valkeys" => Transport::Tls { server_name: None, ca_file: None },
        _ => return Err("has a scheme that is not redis, rediss, valkey or valkeys"),
    };
    // The last `@` ends name and secret, so that a token with `#` or `/` need not be encoded.
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    if place.contains('#') {
        return Err("has a part behind `#`, which is not taken");
    }
    let place = place.split('?').next().unwrap_or_default();
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    let (host, port) = host_and_port(authority)?;
    let database = match path.trim_end_matches('/') {
        "" => 0,
        number => number.parse().map_err(|_| "names a database that is no number")?,
    };
    let decoded = |text: &str| {
        percent_decode_str(text)
            .decode_utf8()
            .map(String::from)
            .map_err(|_| "has a name or secret that is no UTF-8")
    };
    let (username, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
        None => (None, Password::None),
        Some((name, secret)) => {
            let name = Some(decoded(name)?).filter(|name| !name.is_empty());
            let secret = Some(decoded(secret)?).filter(|secret| !secret.is_empty());
            (name, secret.map_or(Password::None, |secret| Password::Given(Secret(secret))))
        }
    };
    Ok(RedisServer { host: host.to_owned(), port, database, transport, username, password })
}

fn host_and_port(authority: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("has an address without its closing bracket")?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => return Err("has an IPv6 address without brackets"),
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("names no host");
    }
    let port = match port {
        None => PORT,
        Some(port) => {
            port.parse().ok().filter(|port| *port > 0).ok_or("has a port that is not 1 to 65535")?
        }
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::{Password, RedisFlags, RedisServer, Secret, Transport};

    fn flags(url: &str) -> RedisFlags {
        RedisFlags { redis_url: Some(url.into()), ..RedisFlags::default() }
    }

    fn server(url: &str) -> RedisServer {
        flags(url).server().unwrap_or_else(|error| panic!("{url}: {error}")).expect("a server")
    }

    fn secret(server: &RedisServer) -> Option<String> {
        server.password.read().expect("no file").map(|secret| secret.reveal().to_owned())
    }

    #[test]
    fn defect_19_every_form_is_read() {
        let table = [
            ("cache", "redis://cache:6379/0", None, None),
            ("cache.example.com:6379", "redis://cache.example.com:6379/0", None, None),
            ("host:6380/2", "redis://host:6380/2", None, None),
            ("host/3", "redis://host:6379/3", None, None),
            ("redis://host", "redis://host:6379/0", None, None),
            ("redis://host:7000/", "redis://host:7000/0", None, None),
            ("redis://host/1?protocol=resp3", "redis://host:6379/1", None, None),
            ("valkey://host:1/2", "redis://host:1/2", None, None),
            ("valkeys://host", "rediss://host:6379/0", None, None),
            ("rediss://user:secret@host:6380/0", "rediss://host:6380/0", Some("user"), Some("secret")),
            ("rediss://:secret@host", "rediss://host:6379/0", None, Some("secret")),
            ("rediss://:a!&#$^<>-b/c@host:6380/4", "rediss://host:6380/4", None, Some("a!&#$^<>-b/c")),
            ("redis://u%40x:p%23q@host", "redis://host:6379/0", Some("u@x"), Some("p#q")),
            ("redis://:a:b@host", "redis://host:6379/0", None, Some("a:b")),
            ("redis://[::1]:7000/1", "redis://[::1]:7000/1", None, None),
            ("[fd00::2]", "redis://[fd00::2]:6379/0", None, None),
            (" host\n", "redis://host:6379/0", None, None),
        ];
        for (url, shown, user, password) in table {
            let server = server(url);
            assert_eq!(server.to_string(), shown, "{url}");
            assert_eq!(server.username.as_deref(), user, "{url}");
            assert_eq!(secret(&server).as_deref(), password, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let table = [
            ("http://host", "scheme"),
            ("redis://", "no host"),
            (":6379", "no host"),
            ("redis://:hidden@host:0", "1 to 65535"),
            ("redis://:hidden@host:99999", "1 to 65535"),
            ("redis://:hidden@host/first", "no number"),
            ("rediss://host/#insecure", "behind `#`"),
            ("redis://fd00::2", "without brackets"),
            ("redis://[::1", "closing bracket"),
            ("redis://hidden@host", "without a password"),
            ("redis://:%ff@host", "no UTF-8"),
        ];
        for (url, expected) in table {
            let error = flags(url).server().expect_err(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn what_is_given_beside_the_url_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "from the file\n").unwrap();
        let mut given = flags("rediss://old:old@host");
        given.redis_username = Some("new".into());
        given.redis_password_file = Some(file.clone());
        given.redis_ca_file = Some("/ca.pem".into());
        given.redis_tls_server_name = Some("cache.example.com".into());
        let server = given.clone().server().unwrap().unwrap();
        assert_eq!(server.username.as_deref(), Some("new"));
        assert_eq!(secret(&server).as_deref(), Some("from the file"));
        std::fs::write(&file, "rotated").unwrap();
        assert_eq!(secret(&server).as_deref(), Some("rotated"));
        let transport =
            Transport::Tls { server_name: Some("cache.example.com".into()), ca_file: Some("/ca.pem".into()) };
        assert_eq!(server.transport, transport);
        given.redis_password = Some("both".into());
        assert!(given.server().is_err());
        let plain = RedisFlags { redis_ca_file: Some("/ca.pem".into()), ..flags("host") };
        assert!(plain.server().unwrap_err().to_string().contains("rediss://"));
    }

    #[test]
    fn nothing_is_no_server_and_no_secret_is_shown() {
        assert_eq!(RedisFlags::default().server().unwrap(), None);
        let empty = RedisFlags { redis_username: Some("user".into()), ..flags("") };
        assert_eq!(empty.server().unwrap(), None);
        let given = RedisFlags { redis_password: Some("hidden".into()), ..flags("redis://:hidden@host") };
        assert!(!format!("{given:?}").contains("hidden"));
        let server = given.server().unwrap().unwrap();
        assert!(!format!("{server:?} {server}").contains("hidden"));
        assert_eq!(server.password, Password::Given(Secret::from("hidden")));
    }
}
