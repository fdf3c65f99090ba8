package recordio

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Size estimates the documents and bytes of a collection over all shards, without orphaned
// documents.
func (n *Records) Size(ctx context.Context, tok record.Token) (record.Size, error) {
	size, err := n.sizeOf(ctx, tok)
	if err != nil {
		return record.Size{}, fmt.Errorf("size of %s.%s: %w", n.Name, tok.Name, conn.WithPrivilege(err))
	}
	return size, nil
}

func (n *Records) sizeOf(ctx context.Context, tok record.Token) (size record.Size, err error) {
	cmd, err := conn.WithUUID(bson.D{
		{Key: "aggregate", Value: tok.Name},
		{Key: "pipeline", Value: bson.A{bson.D{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}}}},
		{Key: "cursor", Value: bson.D{}},
	}, tok)
	if err != nil {
		return size, err
	}
	cursor, err := n.DB.RunCommandCursor(ctx, cmd)
	if err != nil {
		return size, fmt.Errorf("read statistics: %w", err)
	}
	// Each shard returns its own statistics.
	var shards []struct {
		Storage struct {
			Count   int64 `bson:"count"`
			Size    int64 `bson:"size"`
			Orphans int64 `bson:"numOrphanDocs"`
		} `bson:"storageStats"`
	}
	if err := conn.All(ctx, cursor, &shards); err != nil {
		return size, fmt.Errorf("read statistics: %w", err)
	}
	for _, s := range shards {
		// A chunk that moved leaves orphans on its former shard for a while. Do not count them.
		if own := s.Storage.Count - s.Storage.Orphans; own < s.Storage.Count && s.Storage.Count > 0 {
			s.Storage.Size = s.Storage.Size / s.Storage.Count * max(own, 0)
			s.Storage.Count = max(own, 0)
		}
		size.Records += s.Storage.Count
		size.Bytes += s.Storage.Size
	}
	return size, nil
}
