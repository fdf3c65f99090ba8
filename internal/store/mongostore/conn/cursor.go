package conn

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/wire"
)

// KillCursor closes a cursor, also after ctx has ended. Errors are ignored, because the server closes
// idle cursors itself after minutes.
func (n *Conn) KillCursor(ctx context.Context, p wire.Place, id int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
	defer cancel()
	_, b := bsoncore.AppendDocumentStart(nil)
	b = bsoncore.AppendStringElement(b, "killCursors", p.Coll)
	b, at := wire.BeginElement(b, bson.TypeArray, "cursors")
	b = bsoncore.AppendInt64Element(b, "0", id)
	b = wire.EndDocument(b, at)
	_, _ = n.Run(ctx, wire.EndDocument(b, 0))
}

// GetMore returns the next batch of an open cursor. ctx must hold the session that opened the
// cursor.
func (n *Conn) GetMore(ctx context.Context, p wire.Place, id int64, batch int) (wire.Reply, error) {
	raw, err := n.Run(noDeadline{ctx}, wire.AppendGetMore(nil, p, id, batch))
	if err != nil {
		return wire.Reply{}, err
	}
	return wire.ParseReply(raw)
}

// noDeadline hides the deadline of a context from the driver, but still ends with it. The driver
// would turn the deadline into maxTimeMS, which a getMore refuses.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
