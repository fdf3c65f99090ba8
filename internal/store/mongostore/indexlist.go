package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// listedIndex is an entry of listIndexes.
type listedIndex struct {
	name     string
	spec     bson.Raw
	building bool
	build    string // which build, if it is being built
}

// listIndexes lists the indexes of a token's collection, including those under construction.
func (n *Conn) listIndexes(ctx context.Context, tok record.Token) ([]listedIndex, error) {
	cmd := bson.D{{Key: "listIndexes", Value: tok.Name}, {Key: "cursor", Value: bson.D{}}}
	// Without this option, an index under construction looks complete.
	cursor, err := n.db.RunCommandCursor(ctx, append(cmd, bson.E{Key: "includeIndexBuildInfo", Value: true}))
	if hasCode(err, codeUnknownField, codeInvalidOptions, codeAPIStrict) {
		cursor, err = n.db.RunCommandCursor(ctx, cmd) // a server that does not report builds
	}
	// A missing collection is a definite answer, so do not retry.
	if hasCode(err, codeNamespaceNotFound) {
		return nil, permanent(fmt.Errorf("list indexes: %w: %w", record.ErrNotFound, err))
	}
	if err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	var entries []bson.Raw
	if err := cursor.All(ctx, &entries); err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	out := make([]listedIndex, 0, len(entries))
	for _, e := range entries {
		out = append(out, listedFrom(e))
	}
	return out, nil
}

// listedFrom reads an entry of listIndexes. Without build information, the entry is the index
// specification itself.
func listedFrom(entry bson.Raw) listedIndex {
	ix := listedIndex{spec: entry}
	if spec, ok := entry.Lookup("spec").DocumentOK(); ok {
		ix.spec = spec
		ix.building = !entry.Lookup("indexBuildInfo").IsZero()
		if _, data, ok := entry.Lookup("indexBuildInfo", "buildUUID").BinaryOK(); ok {
			ix.build = string(data)
		}
	}
	ix.name, _ = ix.spec.Lookup("name").StringValueOK()
	return ix
}
