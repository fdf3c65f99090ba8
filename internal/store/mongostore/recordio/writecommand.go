package recordio

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/wire"
)

const (
	largeWrite    = 64 << 10 // bytes from which next checks the room in its buffer
	writeOverhead = 1 << 10  // bytes of a statement and of a command, beyond document and _id
)

// writeCommand gathers writes of one verb on one collection, in one or more raw commands within the
// server's limits.
type writeCommand struct {
	verb   string // insert, update, delete
	place  wire.Place
	parts  []*writePart
	bypass bool // skip the collection's validator
	single bool // outside a transaction: the command carries the write concern, unordered
}

type writePart struct {
	buf     *[]byte
	array   int // offset of the array's length
	owners  []int
	emptyTS bool
}

func (c *writeCommand) list() string {
	if c.verb == "insert" {
		return "documents"
	}
	return c.verb + "s"
}

// next makes room for one more write of about size bytes for the group owner. It returns the part
// to append the write's document to, with the element's header already written. Room for large
// documents grows in large steps, because small steps leave several times the command's size as
// garbage.
func (c *writeCommand) next(owner, size int) *writePart {
	var part *writePart
	if len(c.parts) > 0 {
		part = c.parts[len(c.parts)-1]
	}
	if part == nil || len(*part.buf)+size > wire.MaxCommandBytes {
		part = &writePart{buf: wire.GetBuffer()}
		b := wire.AppendCommand(*part.buf, c.verb, c.place)
		*part.buf, part.array = wire.BeginElement(b, bson.TypeArray, c.list())
		c.parts = append(c.parts, part)
	}
	// Grow to several times the size at once; append alone would grow too often.
	if b := *part.buf; size > largeWrite && cap(b)-len(b) < size+writeOverhead {
		*part.buf = append(make([]byte, 0, max(min(4*cap(b), wire.MaxCommandBytes), len(b)+size)+2*writeOverhead), b...)
	}
	*part.buf = wire.AppendIndexed(*part.buf, byte(bson.TypeEmbeddedDocument), len(part.owners))
	part.owners = append(part.owners, owner)
	return part
}

// finish closes a part and returns its bytes, which are valid until release.
func (c *writeCommand) finish(part *writePart) []byte {
	b := wire.EndDocument(*part.buf, part.array)
	if c.single {
		// Unordered, so that one refused document does not stop the others.
		b = bsoncore.AppendBooleanElement(b, "ordered", false)
		b = wire.AppendMajority(b)
	}
	if c.bypass {
		b = bsoncore.AppendBooleanElement(b, "bypassDocumentValidation", true)
	}
	if part.emptyTS {
		// Without it, the server would replace an empty timestamp by the time of the write.
		b = bsoncore.AppendBooleanElement(b, "bypassEmptyTsReplacement", true)
	}
	*part.buf = wire.EndDocument(b, 0)
	return *part.buf
}

func (c *writeCommand) release() {
	for _, part := range c.parts {
		wire.PutBuffer(part.buf)
	}
	c.parts = nil
}
