package conn

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/base/rawdoc"
)

// Decode reads the answer of a command or the document of a FindOne. The driver's own Decode never
// returns for some damaged documents.
func Decode(answer *mongo.SingleResult, into any) error {
	raw, err := answer.Raw()
	if err != nil {
		return err
	}
	return rawdoc.Unmarshal(raw, into)
}

// All reads all documents of a cursor and closes it. It is the counterpart of Decode.
func All[T any](ctx context.Context, cursor *mongo.Cursor, into *[]T) error {
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return err
	}
	all := make([]T, len(docs))
	for i, doc := range docs {
		if err := rawdoc.Unmarshal(doc, &all[i]); err != nil {
			return err
		}
	}
	*into = all
	return nil
}
