//! Fields of an AdminServer's answers.

use serde_json::{Map, Value};

use super::error::AskError;

/// A command's answer: a JSON object. Any other JSON, and a field of another type than expected, is an error that names command and field.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    command: &'static str,
    fields: Map<String, Value>,
}

impl Answer {
    /// Decodes the answer's body.
    ///
    /// # Errors
    /// [`AskError::NoAdminServer`] if the body is not a JSON object; [`AskError::Starting`] if the server does not serve clients; [`AskError::Refused`]
    /// for any other error that the body names.
    pub fn decode(command: &'static str, body: &str) -> Result<Answer, AskError> {
        let Ok(Value::Object(fields)) = serde_json::from_str(body) else {
            return Err(AskError::NoAdminServer { command });
        };
        match fields.get("error") {
            None | Some(Value::Null) => Ok(Answer { command, fields }),
            Some(Value::String(why))
                if why.contains("not currently serving") || why.contains("not initialized") =>
            {
                Err(AskError::Starting)
            }
            Some(why) => {
                let why = why.as_str().map_or_else(|| why.to_string(), str::to_owned);
                Err(AskError::Refused { command, why: shortened(&why) })
            }
        }
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// A field of text.
    pub fn text(&self, name: &'static str) -> Result<&str, AskError> {
        self.fields.get(name).and_then(Value::as_str).ok_or_else(|| self.lacks(name))
    }

    /// A whole number that is not negative, under the first of the `names` that the answer has. Metrics come as numbers of either kind.
    pub fn number(&self, names: &[&'static str]) -> Result<u64, AskError> {
        let field = names.iter().find_map(|name| self.fields.get(*name));
        let number = field.and_then(|field| {
            // A float beyond 2^53 or below zero is no count.
            let float = |float: f64| (0.0..9e15).contains(&float).then_some(float as u64);
            field.as_u64().or_else(|| field.as_f64().and_then(float))
        });
        number.ok_or_else(|| self.lacks(names.first().copied().unwrap_or("a number")))
    }

    /// True or false.
    pub fn flag(&self, name: &'static str) -> Result<bool, AskError> {
        self.fields.get(name).and_then(Value::as_bool).ok_or_else(|| self.lacks(name))
    }

    /// A transaction's number, with or without `0x` before its hexadecimal digits. `None` for -1: there is none.
    pub fn zxid(&self, name: &'static str) -> Result<Option<u64>, AskError> {
        let text = self.text(name)?;
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let number = u64::from_str_radix(digits, 16).map_err(|_| self.lacks(name))?;
        Ok((number != u64::MAX).then_some(number))
    }

    /// The error that this answer lacks a field, or has it in another form.
    pub fn lacks(&self, field: &'static str) -> AskError {
        AskError::Malformed { command: self.command, field }
    }
}

/// The first 200 characters of a foreign text, without control characters.
pub fn shortened(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(body: &str) -> Result<Answer, AskError> {
        Answer::decode("monitor", body)
    }

    #[test]
    fn fields_are_decoded_in_each_form_that_servers_give_them() {
        let answer = decode(
            r#"{"command":"monitor","error":null,"n":7,"f":7.0,"z":"0x100000002","y":"100000002","none":"ffffffffffffffff","b":true}"#,
        )
        .unwrap();
        assert_eq!(answer.number(&["n"]).unwrap(), 7);
        assert_eq!(answer.number(&["absent", "f"]).unwrap(), 7);
        assert_eq!(answer.zxid("z").unwrap(), Some(0x1_0000_0002));
        assert_eq!(answer.zxid("y").unwrap(), Some(0x1_0000_0002));
        assert_eq!(answer.zxid("none").unwrap(), None);
        assert!(answer.flag("b").unwrap());
        assert_eq!(answer.text("command").unwrap(), "monitor");
    }

    #[test]
    fn any_other_body_is_an_error_in_words() {
        for (body, word) in [
            ("", "no AdminServer"),
            ("<html>", "no AdminServer"),
            ("[1]", "no AdminServer"),
            (r#"{"error":"This ZooKeeper instance is not currently serving requests"}"#, "serves no clients"),
            (r#"{"error":"server is not initialized"}"#, "serves no clients"),
            (r#"{"error":"Unknown command: monitor"}"#, "Unknown command"),
            (r#"{"error":{"a":1}}"#, "refuses"),
        ] {
            let error = decode(body).unwrap_err().to_string();
            assert!(error.contains(word), "{body}: {error}");
        }
        let answer = decode(r#"{"n":-1,"s":"x","big":1e300,"f":"yes"}"#).unwrap();
        assert!(answer.number(&["n"]).is_err() && answer.number(&["big"]).is_err());
        assert!(answer.number(&["s"]).unwrap_err().to_string().contains("'s'"));
        assert!(answer.zxid("s").is_err() && answer.flag("f").is_err() && answer.text("n").is_err());
    }

    #[test]
    fn a_deeply_nested_body_is_an_error() {
        assert!(decode(&"[".repeat(100_000)).is_err());
        assert!(decode(&"{\"a\":".repeat(100_000)).is_err());
    }
}
