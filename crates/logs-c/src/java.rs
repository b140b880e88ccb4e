//! The native methods of `java/furrow/LogFile.java` and `java/furrow/LogReader.java`, which document them. A handle is the address of a [`Log`] or a [`LogReader`]; their base class, `Handle`, keeps it
//! from being used after its close.

use std::any::Any;

use jni::errors::{ErrorPolicy, Result as JniResult};
use jni::objects::{JByteArray, JClass, JString};
use jni::strings::JNIString;
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned, jni_str};
use logs::{Error, Log, LogReader, Options};
use prio::How;

/// An error of a native method.
#[derive(Debug)]
enum Failure {
    Log(Error),
    Jni(jni::errors::Error),
    Argument(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Log(error)
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Failure {
        Failure::Jni(error)
    }
}

/// Throws `java.io.IOException` with the error's text.
struct ThrowIoException;

impl<T: Default> ErrorPolicy<T, Failure> for ThrowIoException {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _captures: &mut (),
        failure: Failure,
    ) -> JniResult<T> {
        let text = match failure {
            Failure::Log(error) => error.to_string(),
            Failure::Jni(error) => error.to_string(),
            Failure::Argument(what) => what.to_owned(),
        };
        throw(env, &text);
        Ok(T::default())
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _captures: &mut (),
        _payload: Box<dyn Any + Send + 'static>,
    ) -> JniResult<T> {
        throw(env, "a panic: a defect of the library");
        Ok(T::default())
    }
}

fn throw(env: &mut Env<'_>, text: &str) {
    if !env.exception_check() {
        // A thrown exception is returned as an error too.
        let _thrown = env.throw_new(jni_str!("java/io/IOException"), JNIString::from(text));
    }
}

/// The log of a handle.
///
/// # Safety
/// `handle` is 0, or came from [`Java_furrow_LogFile_open0`] and was neither closed nor dropped.
unsafe fn log_of<'a>(handle: jlong) -> Result<&'a Log, Failure> {
    // SAFETY: by this function's contract.
    let log = unsafe { (handle as *const Log).as_ref() };
    log.ok_or(Failure::Argument("the log is closed"))
}

fn number(value: jlong, what: &'static str) -> Result<u64, Failure> {
    u64::try_from(value).map_err(|_| Failure::Argument(what))
}

/// A string of Java that may be empty for "none".
fn text(env: &mut Env<'_>, string: &JString<'_>) -> Result<Option<String>, Failure> {
    let text = string.try_to_string(env)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Creates the log of `path`, or opens it at `end` if that is not negative. Numbers of 0 are the defaults; a negative room is none. An empty `drive`: an ordinary file.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_open0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    path: JString<'local>,
    end: jlong,
    how: jint,
    block: jint,
    room: jlong,
    buffer: jlong,
    writer: JString<'local>,
    drive: JString<'local>,
) -> jlong {
    let outcome = env.with_env(|env| -> Result<jlong, Failure> {
        let how = match how {
            0 => How::Request,
            1 => How::Thread,
            2 => How::Process,
            _ => return Err(Failure::Argument("an unknown way of writing")),
        };
        let mut file = prio::Options { how, ..prio::Options::default() };
        if let Some(writer) = text(env, &writer)? {
            file.writer = writer.into();
        }
        if block != 0 {
            file.block = u32::try_from(block)
                .map_err(|_| Failure::Argument("a block has a positive number of bytes"))?;
        }
        if room != 0 {
            file.room = u64::try_from(room).unwrap_or(0);
        }
        if buffer != 0 {
            file.buffer = number(buffer, "a buffer has a positive number of bytes")?;
        }
        let options = Options { drive: text(env, &drive)?, file };
        let path = path.try_to_string(env)?;
        let log = match u64::try_from(end) {
            Ok(end) => Log::open(path, end, &options)?,
            Err(_) => Log::create(path, &options)?,
        };
        Ok(Box::into_raw(Box::new(log)) as jlong)
    });
    outcome.resolve::<ThrowIoException>()
}

/// Appends bytes of `array`. Returns where they end.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_append0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    array: JByteArray<'local>,
) -> jlong {
    let outcome = env.with_env(|env| -> Result<jlong, Failure> {
        let bytes = env.convert_byte_array(&array)?;
        // SAFETY: the Java class gives handles of open logs only.
        let end = unsafe { log_of(handle) }?.append(&bytes)?;
        jlong::try_from(end).map_err(|_| Failure::Argument("the log is longer than Java can tell"))
    });
    outcome.resolve::<ThrowIoException>()
}

/// Makes all bytes below `upto` durable.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_sync0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    upto: jlong,
) {
    let outcome = env.with_env(|_| -> Result<(), Failure> {
        let upto = number(upto, "a sync ends at a place that is not negative")?;
        // SAFETY: the Java class gives handles of open logs only.
        Ok(unsafe { log_of(handle) }?.sync(upto)?)
    });
    outcome.resolve::<ThrowIoException>()
}

/// Number of appended bytes, or of durable ones.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_end0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    durable: jboolean,
) -> jlong {
    let outcome = env.with_env(|_| -> Result<jlong, Failure> {
        // SAFETY: the Java class gives handles of open logs only.
        let log = unsafe { log_of(handle) }?;
        let end = if durable { log.durable() } else { log.end() };
        jlong::try_from(end).map_err(|_| Failure::Argument("the log is longer than Java can tell"))
    });
    outcome.resolve::<ThrowIoException>()
}

/// True if the log's writes were real-time when it was opened.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_isRealTime0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> jboolean {
    // SAFETY: the Java class gives handles of open logs only.
    let outcome =
        env.with_env(|_| -> Result<jboolean, Failure> { Ok(unsafe { log_of(handle) }?.is_real_time()) });
    outcome.resolve::<ThrowIoException>()
}

/// Why no room is zeroed ahead of the log any more; null while there is room.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_roomFailure0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> JString<'local> {
    let outcome = env.with_env(|env| -> Result<JString<'local>, Failure> {
        // SAFETY: the Java class gives handles of open logs only.
        match unsafe { log_of(handle) }?.room_failure() {
            Some(text) => Ok(env.new_string(text)?),
            None => Ok(JString::default()),
        }
    });
    outcome.resolve::<ThrowIoException>()
}

/// Closes the log. The handle is gone, also after an error.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_close0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    let outcome = env.with_env(|_| -> Result<(), Failure> {
        if handle == 0 {
            return Ok(());
        }
        // SAFETY: the Java class gives each handle to one close, when no other call uses it.
        Ok(unsafe { Box::from_raw(handle as *mut Log) }.close()?)
    });
    outcome.resolve::<ThrowIoException>()
}

/// Removes a log.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogFile_remove0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    path: JString<'local>,
    drive: JString<'local>,
) {
    let outcome = env.with_env(|env| -> Result<(), Failure> {
        let options = Options { drive: text(env, &drive)?, ..Options::default() };
        let path = path.try_to_string(env)?;
        Ok(logs::remove(path, &options)?)
    });
    outcome.resolve::<ThrowIoException>()
}

/// The reader of a handle.
///
/// # Safety
/// `handle` is 0, or came from [`Java_furrow_LogReader_open0`] and was not closed.
unsafe fn reader_of<'a>(handle: jlong) -> Result<&'a LogReader, Failure> {
    // SAFETY: by this function's contract.
    let reader = unsafe { (handle as *const LogReader).as_ref() };
    reader.ok_or(Failure::Argument("the reader is closed"))
}

/// Opens the log of `path` for reading.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogReader_open0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    path: JString<'local>,
    drive: JString<'local>,
) -> jlong {
    let outcome = env.with_env(|env| -> Result<jlong, Failure> {
        let options = Options { drive: text(env, &drive)?, ..Options::default() };
        let path = path.try_to_string(env)?;
        Ok(Box::into_raw(Box::new(LogReader::open(path, &options)?)) as jlong)
    });
    outcome.resolve::<ThrowIoException>()
}

/// Number of bytes of the log.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogReader_length0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> jlong {
    let outcome = env.with_env(|_| -> Result<jlong, Failure> {
        // SAFETY: the Java class gives handles of open readers only.
        let len = unsafe { reader_of(handle) }?.len()?;
        jlong::try_from(len).map_err(|_| Failure::Argument("the log is longer than Java can tell"))
    });
    outcome.resolve::<ThrowIoException>()
}

/// Reads bytes at `offset` into `array`. Returns their number.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogReader_read0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    offset: jlong,
    array: JByteArray<'local>,
) -> jint {
    let outcome = env.with_env(|env| -> Result<jint, Failure> {
        let offset = number(offset, "a read begins at a place that is not negative")?;
        let mut bytes = env.convert_byte_array(&array)?;
        // SAFETY: the Java class gives handles of open readers only.
        let read = unsafe { reader_of(handle) }?.read_at(offset, &mut bytes)?;
        let found: Vec<i8> = bytes.iter().take(read).map(|byte| byte.cast_signed()).collect();
        array.set_region(env, 0, &found)?;
        jint::try_from(read).map_err(|_| Failure::Argument("an array longer than Java's"))
    });
    outcome.resolve::<ThrowIoException>()
}

/// Closes the reader. The handle is gone.
#[unsafe(no_mangle)]
pub extern "system" fn Java_furrow_LogReader_close0<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    let outcome = env.with_env(|_| -> Result<(), Failure> {
        if handle != 0 {
            // SAFETY: the Java class gives each handle to one close, when no other call uses it.
            drop(unsafe { Box::from_raw(handle as *mut LogReader) });
        }
        Ok(())
    });
    outcome.resolve::<ThrowIoException>()
}
