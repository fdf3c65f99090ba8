package conn

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// ListedIndex is an entry of ListIndexes.
type ListedIndex struct {
	Name     string
	Spec     bson.Raw
	Building bool
	Build    string // which build, if it is being built
}

// ListIndexes lists the indexes of a token's collection, including those under construction.
func (n *Conn) ListIndexes(ctx context.Context, tok record.Token) ([]ListedIndex, error) {
	cmd := bson.D{{Key: "listIndexes", Value: tok.Name}, {Key: "cursor", Value: bson.D{}}}
	// Without this option, an index under construction looks complete.
	cursor, err := n.DB.RunCommandCursor(ctx, append(cmd, bson.E{Key: "includeIndexBuildInfo", Value: true}))
	if HasCode(err, codeUnknownField, CodeInvalidOptions, CodeAPIStrict) {
		cursor, err = n.DB.RunCommandCursor(ctx, cmd) // a server that does not report builds
	}
	// A missing collection is a definite answer, so do not retry.
	if HasCode(err, CodeNamespaceNotFound) {
		return nil, Permanent(fmt.Errorf("list indexes: %w: %w", record.ErrNotFound, err))
	}
	if err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	var entries []bson.Raw
	if err := All(ctx, cursor, &entries); err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	out := make([]ListedIndex, 0, len(entries))
	for _, e := range entries {
		out = append(out, ListedFrom(e))
	}
	return out, nil
}

// ListedFrom reads an entry of ListIndexes. Without build information, the entry is the index
// specification itself.
func ListedFrom(entry bson.Raw) ListedIndex {
	ix := ListedIndex{Spec: entry}
	if spec, ok := entry.Lookup("spec").DocumentOK(); ok {
		ix.Spec = spec
		ix.Building = !entry.Lookup("indexBuildInfo").IsZero()
		if _, data, ok := rawdoc.Lookup(entry, "indexBuildInfo", "buildUUID").BinaryOK(); ok {
			ix.Build = string(data)
		}
	}
	ix.Name, _ = ix.Spec.Lookup("name").StringValueOK()
	return ix
}
