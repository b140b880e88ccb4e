package furrow;

import java.io.IOException;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** An object of the library, by its address. */
abstract class Handle implements AutoCloseable {
  static {
    System.loadLibrary("furrow_log");
  }

  /** A native method with the object's address as its argument. */
  interface Call<T> {
    T on(long handle) throws IOException;
  }

  /** Held for reading by calls, and for writing by the close: no call uses an object that is gone. */
  private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();

  /** The address; 0 after the close. */
  private long handle;

  Handle(long handle) {
    this.handle = handle;
  }

  /** Makes a call, which gets 0 after the close. */
  final <T> T call(Call<T> call) throws IOException {
    lock.readLock().lock();
    try {
      return call.on(handle);
    } finally {
      lock.readLock().unlock();
    }
  }

  /** Frees the object. {@code handle} is 0 at a second close. */
  abstract void free(long handle) throws IOException;

  @Override
  public void close() throws IOException {
    lock.writeLock().lock();
    try {
      long closing = handle;
      handle = 0;
      free(closing);
    } finally {
      lock.writeLock().unlock();
    }
  }
}
