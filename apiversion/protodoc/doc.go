// Package protodoc turns protobuf messages into BSON documents and back, so that a
// handler's resource message is what is stored and lenses, filters and people meet the
// same field names everywhere.
//
// The canonical document of a message, which Marshal makes and equal messages share byte
// for byte:
//
//	fields             in the order of their declaration, under their proto names
//	without presence   always there, with their zero value too: a lens or a query need
//	                   not know that absent means zero
//	with presence      (optional scalars, messages, oneof members) absent when not set
//	int32, sint32 ...  int32
//	int64, uint32 ...  int64
//	uint64, fixed64    int64, above its range decimal128: exact, and in numeric order
//	float, double      double
//	enum               the name of the value, its number (int32) where it has no name
//	bytes              binary
//	repeated           array
//	map                document, keys in order: numbers by value, strings bytewise
//	Timestamp          date where it is whole milliseconds, else an RFC 3339 string: no
//	                   nanosecond is lost, but truncate times that a database has to sort
//	Duration           string as in protobuf's JSON, "1.500s"
//	wrappers           the value that they wrap
//	Struct, Value      the BSON of the same shape
//
// Unmarshal(Marshal(m)) is m. Unmarshal reads leniently what is exact: absent and null
// are unset, an integral double is an integer, an enum may be its number.
//
// A field and an enum value may have aliases, further names under which they are read (the
// options of dbcontroller/protodoc/v1/alias.proto): what has got another name is not read as
// zero. They are written under their own names, and what does not change keeps the name that it
// has in a document. A field that is there under two names is an error, as one that is there
// twice.
//
// Merge is for read-modify-write: it writes the content of a message into a document that
// may hold more than the message knows, such as a newer program's fields or the record's
// _id. What the document holds already keeps its bytes, so Merge(d, Unmarshal(d)) is d.
//
// What a document cannot hold is an *Error with the path of the field: NUL in a map key,
// text that is not UTF-8, more than 100 levels, protobuf fields that the program does
// not know. Nothing is dropped silently.
//
// Codec and Kinds let the pairs and groups of package typed be functions of messages.
//
// The package does not validate messages, nor does it know records or keys beyond the
// _id that MarshalID writes.
package protodoc
