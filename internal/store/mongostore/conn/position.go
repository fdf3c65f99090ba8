package conn

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
)

// VersionOf returns the version of a snapshot at a cluster time: the time, seconds first, and eight
// zero bytes.
func VersionOf(ts bson.Timestamp) (v record.Version) {
	binary.BigEndian.PutUint32(v[0:], ts.T)
	binary.BigEndian.PutUint32(v[4:], ts.I)
	return v
}

// TimestampOf returns the cluster time of a version.
func TimestampOf(v record.Version) bson.Timestamp {
	return bson.Timestamp{T: binary.BigEndian.Uint32(v[0:]), I: binary.BigEndian.Uint32(v[4:])}
}

// CursorAt returns the place of an _id in the key order: its type byte and its stored value. As
// From of a range it includes the id, as To it excludes it.
func CursorAt(id bson.RawValue) record.Cursor {
	return append(record.Cursor{byte(id.Type)}, id.Value...)
}

// MarksCollection holds one document for each fence, and small notes. A fence's document is written
// after its operation, so its change event is later than every write that the fence let through. If
// the server refuses oplog notes, the majority writes of Position go here too. Streams follow only
// the marks of write blocks.
const MarksCollection = "dbc_marks"

// Position writes a no-op and waits until a majority has it. Every later write of any primary is
// then after the position, even if the current primary is lost.
func (n *Conn) Position(ctx context.Context) (record.Position, error) {
	at, err := n.MajorityNow(ctx)
	if err != nil {
		return record.Position{}, fmt.Errorf("position: %w", err)
	}
	// Through mongos the time is that of the latest shard. Send it to the others, or they could
	// write earlier times afterwards.
	mongos, err := n.IsMongos(ctx)
	if err == nil && mongos {
		n.Pulse.Quicken()
		err = n.tellShards(ctx, at, false)
	}
	if err != nil {
		return record.Position{}, fmt.Errorf("position: %w", err)
	}
	return record.Position{At: VersionOf(at)}, nil
}

// AppendNote writes a no-op into the oplog, through mongos into the oplog of every shard.
func (n *Conn) AppendNote(ctx context.Context, text string, concern bson.D) *mongo.SingleResult {
	return n.Admin().RunCommand(ctx, bson.D{
		{Key: "appendOplogNote", Value: 1},
		{Key: "data", Value: bson.D{{Key: "dbcontroller", Value: text}}},
		{Key: "writeConcern", Value: concern},
	})
}

// lacksNotes reports whether the server or the user cannot write notes at all. The stable API does
// not contain them.
func lacksNotes(err error) bool {
	return HasCode(err, CodeUnauthorized, CodeCommandNotFound, codeNotImplemented, codeIllegalOperation, CodeAPIStrict)
}

// MajorityNow makes a majority write and returns its cluster time.
func (n *Conn) MajorityNow(ctx context.Context) (bson.Timestamp, error) {
	concern := bson.D{{Key: "w", Value: "majority"}}
	majority := bson.E{Key: "writeConcern", Value: concern}
	raw, err := n.AppendNote(ctx, "position of "+n.Name, concern).Raw()
	// A note fails if it does not get its lock at once. Then write to the marks instead.
	if lacksNotes(err) || HasCode(err, codeLockFailed) {
		raw, err = n.DB.RunCommand(ctx, bson.D{
			{Key: "update", Value: MarksCollection},
			{Key: "updates", Value: bson.A{bson.D{
				{Key: "q", Value: bson.D{{Key: "_id", Value: "position"}}},
				{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}},
				{Key: "upsert", Value: true},
			}}},
			majority,
		}).Raw()
	}
	if err != nil {
		return bson.Timestamp{}, Classify("majority write", err)
	}
	return operationTime(raw)
}

func operationTime(raw bson.Raw) (bson.Timestamp, error) {
	t, i, ok := raw.Lookup("operationTime").TimestampOK()
	if !ok {
		return bson.Timestamp{}, errors.New("server's reply has no operation time: not a replica set")
	}
	return bson.Timestamp{T: t, I: i}, nil
}

// timestampType begins a resume token, which is a key string, before its timestamp.
const timestampType = "82"

// TokenTime returns the cluster time at the beginning of a resume token.
func TokenTime(token bson.Raw) (bson.Timestamp, bool) {
	data, ok := token.Lookup("_data").StringValueOK()
	if !ok || len(data) < len(timestampType)+16 || data[:len(timestampType)] != timestampType {
		return bson.Timestamp{}, false
	}
	b, err := hex.DecodeString(data[len(timestampType) : len(timestampType)+16])
	if err != nil {
		return bson.Timestamp{}, false
	}
	return bson.Timestamp{T: binary.BigEndian.Uint32(b), I: binary.BigEndian.Uint32(b[4:])}, true
}
