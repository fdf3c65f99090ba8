// Package protodoc converts protobuf messages to BSON documents and back. A handler can then store
// its resource messages, and lenses, filters and people see the same field names everywhere. A
// lens declares the differences of two document formats (package transform/lens). Package resource
// stores resources in this form. Begin to read at Marshal, Unmarshal and Merge.
//
// # The canonical document
//
// Marshal writes the canonical document of a message. Equal messages have equal bytes:
//
//	fields             in the order of their declaration, under their proto names
//	without presence   always present, even if zero: a lens or a query need not treat absent
//	                   as zero
//	with presence      (optional scalars, messages, oneof members) absent if unset
//	int32, sint32 ...  int32
//	int64, uint32 ...  int64
//	uint64, fixed64    int64, above its range decimal128: exact, and in numeric order
//	float, double      double
//	enum               the name of the value; its number (int32) if it has no name
//	bytes              binary
//	repeated           array
//	map                document, keys in order: numbers by value, strings bytewise
//	Timestamp          date if it is whole milliseconds, else an RFC 3339 string. Nanoseconds
//	                   stay exact, but truncate times that a database must sort
//	Duration           string as in protobuf's JSON, "1.500s"
//	wrappers           the wrapped value
//	Struct, Value      the BSON of the same shape
//
// Unmarshal(Marshal(m)) equals m. Unmarshal also accepts other exact forms: absent and null are
// unset, an integral double is an integer, and an enum may be its number.
//
// # Aliases
//
// A field or an enum value may have aliases: further names under which Unmarshal reads it (the
// options of dbcontroller/protodoc/v1/alias.proto). So a renamed field still reads its value from
// old documents. Marshal writes only the field's own name. Merge keeps a document's name for an
// unchanged field. A document that holds a field twice is an error, also under two names.
//
// # Merge
//
// Merge writes a message into an existing document, for read-modify-write. The document may hold
// more than the message type knows, such as a newer program's fields or the record's _id. Unchanged
// parts keep their bytes, so Merge(d, Unmarshal(d)) is d.
//
// # Errors
//
// Nothing is dropped silently. If a document cannot hold a message, the error is an *Error with the
// path of the field. Reasons are NUL in a map key, text that is not UTF-8, more than 100 levels,
// and protobuf fields that the program does not know.
//
// # Further uses
//
// Kinds lets the groups of package typed work on messages. Renamed prepares a document with aliases
// for a lens.
//
// The package does not validate messages. It does not know records or keys, except for the _id
// that MarshalID writes.
package protodoc
