//! The native methods of `java/furrow/LogFile.java`, which documents them. A handle is the address of a [`LogFile`]; the Java class keeps it from being used after its close.

use std::any::Any;

use jni::errors::{ErrorPolicy, Result as JniResult};
use jni::objects::{JByteArray, JClass, JString};
use jni::strings::JNIString;
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned, jni_str};
use prio::{Error, How, LogFile, Options};

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
unsafe fn log_of<'a>(handle: jlong) -> Result<&'a LogFile, Failure> {
    // SAFETY: by this function's contract.
    let log = unsafe { (handle as *const LogFile).as_ref() };
    log.ok_or(Failure::Argument("the log is closed"))
}

fn number(value: jlong, what: &'static str) -> Result<u64, Failure> {
    u64::try_from(value).map_err(|_| Failure::Argument(what))
}

/// Creates the log of `path`, or opens it at `end` if that is not negative. Numbers of 0 are the defaults; a negative room is none.
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
) -> jlong {
    let outcome = env.with_env(|env| -> Result<jlong, Failure> {
        let how = match how {
            0 => How::Request,
            1 => How::Thread,
            2 => How::Process,
            _ => return Err(Failure::Argument("an unknown way of writing")),
        };
        let mut options = Options { how, ..Options::default() };
        let writer = writer.try_to_string(env)?;
        if !writer.is_empty() {
            options.writer = writer.into();
        }
        if block != 0 {
            options.block = u32::try_from(block)
                .map_err(|_| Failure::Argument("a block has a positive number of bytes"))?;
        }
        if room != 0 {
            options.room = u64::try_from(room).unwrap_or(0);
        }
        if buffer != 0 {
            options.buffer = number(buffer, "a buffer has a positive number of bytes")?;
        }
        let path = path.try_to_string(env)?;
        let log = match u64::try_from(end) {
            Ok(end) => LogFile::open(path, end, &options)?,
            Err(_) => LogFile::create(path, &options)?,
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
        Ok(unsafe { Box::from_raw(handle as *mut LogFile) }.close()?)
    });
    outcome.resolve::<ThrowIoException>()
}
