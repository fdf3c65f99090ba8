package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// killCursor closes a cursor. Errors are ignored, because the server closes idle cursors itself.
func (n *Conn) killCursor(ctx context.Context, p place, id int64) {
	_, b := bsoncore.AppendDocumentStart(nil)
	b = bsoncore.AppendStringElement(b, "killCursors", p.coll)
	b, at := beginElement(b, bson.TypeArray, "cursors")
	b = bsoncore.AppendInt64Element(b, "0", id)
	b = endDocument(b, at)
	_, _ = n.run(ctx, endDocument(b, 0))
}

// getMore returns the next batch of an open cursor. ctx must hold the session that opened the
// cursor.
func (n *Conn) getMore(ctx context.Context, p place, id int64, batch int) (reply, error) {
	raw, err := n.run(noDeadline{ctx}, appendGetMore(nil, p, id, batch))
	if err != nil {
		return reply{}, err
	}
	return parseReply(raw)
}
