# Furrow in RocksDB's own build, for programs that link RocksDB statically. See README.md here.
furrow_SOURCES = status.cc files.cc logger.cc file_system.cc register.cc
furrow_HEADERS = furrow_abi.h status.h files.h logger.h file_system.h register.h
furrow_FUNC = register_furrow
furrow_CXXFLAGS = -Iplugin/furrow
# FURROW_LIB: where libfurrow_rocksdb.a is.
furrow_LDFLAGS = -L$(FURROW_LIB) -lfurrow_rocksdb -lpthread -ldl -lm
