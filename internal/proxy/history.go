package proxy

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// statement is an entry of the oplog for one statement of a retryable write.
type statement struct {
	Op        string         `bson:"op"`
	Document  bson.Raw       `bson:"o"`
	Statement any            `bson:"stmtId"` // a number, or a list with one for each document
	Image     string         `bson:"needsRetryImage"`
	Number    int64          `bson:"txnNumber"`
	Session   bson.Raw       `bson:"lsid"`
	At        bson.Timestamp `bson:"ts"`
	Before    struct {
		At bson.Timestamp `bson:"ts"`
	} `bson:"prevOpTime"`
}

// primary reads from the primary, because a secondary may lack the last writes.
var primary = options.Database().SetReadPreference(readpref.Primary())

// errRolledOver means that the oplog no longer reaches back to a write.
var errRolledOver = errors.New("the oplog no longer reaches back to it")

// incompleteHistory is the number of an entry that stands for statements whose entries are gone.
const incompleteHistory = -1

// executed returns the reply to a write that a cluster has made as a whole. If it has made a part, rest
// learns which, and executed returns nil.
func executed(ctx context.Context, last lastWrite, c command, rest *batch) (bsoncore.Document, error) {
	made, err := history(ctx, last)
	if errors.Is(err, errRolledOver) {
		return failure(codeHistoryIncomplete, "the write was made before the data moved to another cluster, and its answer is lost: "+err.Error()), nil
	}
	if err != nil {
		return nil, fmt.Errorf("what a write before the switch has done: %w", err)
	}
	switch c.verb {
	case "findAndModify", "findandmodify":
		return found(ctx, last, c, made)
	case "insert", "update", "delete":
		return rest.executed(made)
	}
	return failure(codeHistoryIncomplete, "the write was made before the data moved to another cluster, and the proxy cannot answer for "+c.verb), nil
}

// history returns the statements of a session's last write, by their numbers.
func history(ctx context.Context, last lastWrite) (map[int]statement, error) {
	oplog := last.cluster.Client().Database("local", primary).Collection("oplog.rs")
	made := map[int]statement{}
	for at := last.place; at != (bson.Timestamp{}); {
		var s statement
		err := oplog.FindOne(ctx, bson.D{{Key: "ts", Value: at}}).Decode(&s)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil, errRolledOver
		}
		if err != nil {
			return nil, err
		}
		// The chain goes on with the session's earlier writes.
		if s.Number != last.number {
			break
		}
		if err := s.add(made); err != nil {
			return nil, err
		}
		at = s.Before.At
	}
	// The session's entry names a statement of this number.
	_, incomplete := made[incompleteHistory]
	if len(made) == 0 || incomplete {
		return nil, errRolledOver
	}
	return made, nil
}

// add adds the statements of an entry. A list of inserts is one entry.
func (s statement) add(made map[int]statement) error {
	if s.Op == "c" {
		var list struct {
			Ops []statement `bson:"applyOps"`
		}
		if err := bson.Unmarshal(s.Document, &list); err != nil {
			return err
		}
		for _, one := range list.Ops {
			if err := one.add(made); err != nil {
				return err
			}
		}
		return nil
	}
	ids, ok := s.Statement.(bson.A)
	if !ok {
		ids = bson.A{s.Statement}
	}
	for _, id := range ids {
		switch id := id.(type) {
		case int32:
			made[int(id)] = s
		case int64:
			made[int(id)] = s
		default:
			return fmt.Errorf("the oplog has a statement without a number at %v", s.At)
		}
	}
	return nil
}

// executed takes the statements that were made already. It returns the reply if none is left.
func (b *batch) executed(made map[int]statement) (bsoncore.Document, error) {
	if b.parted {
		return nil, nil // it was made by this proxy, and refused in part
	}
	docs, err := b.c.sequence(b.list)
	if err != nil {
		return nil, err
	}
	var left []int
	for i := range docs {
		s, done := made[i]
		if !done {
			left = append(left, i)
			continue
		}
		b.n++
		if b.c.verb != "update" {
			continue
		}
		if s.Op != "i" {
			b.changed++
			continue
		}
		id, err := s.Document.LookupErr("_id")
		if err != nil {
			return nil, fmt.Errorf("an inserted document without _id: %w", err)
		}
		b.upserts = append(b.upserts, bsoncore.NewDocumentBuilder().AppendInt32("index", int32(i)).
			AppendValue("_id", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value}).Build())
	}
	b.parted, b.left = true, left
	if len(left) > 0 {
		return nil, nil
	}
	return b.reply(success()), nil
}

// found is the answer to a findAndModify that was made already. The server keeps the document that it
// answered with, for the last one of each session.
func found(ctx context.Context, last lastWrite, c command, made map[int]statement) (bsoncore.Document, error) {
	s, ok := made[0]
	if !ok {
		return nil, nil // it found nothing, or another command had the number
	}
	value := bsoncore.Value{Type: bsoncore.TypeNull}
	about := bsoncore.NewDocumentBuilder().AppendInt32("n", 1)
	wantsNew := false
	if v, err := c.msg.Body.LookupErr("new"); err == nil {
		wantsNew, _ = v.BooleanOK()
	}
	switch {
	case s.Op == "i":
		about.AppendBoolean("updatedExisting", false)
		if id, err := s.Document.LookupErr("_id"); err == nil {
			about.AppendValue("upserted", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
		}
		if wantsNew {
			value = bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: s.Document}
		}
	case s.Image != "":
		if s.Op != "d" {
			about.AppendBoolean("updatedExisting", true)
		}
		image, err := imageOf(ctx, last, s)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return failure(codeHistoryIncomplete, "the write was made before the data moved to another cluster, and the document that it returned is lost"), nil
		}
		if err != nil {
			return nil, err
		}
		value = bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: image}
	default:
		return failure(codeHistoryIncomplete, "the write was made before the data moved to another cluster, and the document that it returned was not kept"), nil
	}
	return bsoncore.NewDocumentBuilder().AppendDocument("lastErrorObject", about.Build()).AppendValue("value", value).AppendDouble("ok", 1).Build(), nil
}

func imageOf(ctx context.Context, last lastWrite, s statement) (bson.Raw, error) {
	var kept struct {
		Image       bson.Raw       `bson:"image"`
		Number      int64          `bson:"txnNum"`
		At          bson.Timestamp `bson:"ts"`
		Invalidated bool           `bson:"invalidated"`
	}
	images := last.cluster.Client().Database("config", primary).Collection("image_collection")
	if err := images.FindOne(ctx, bson.D{{Key: "_id", Value: s.Session}}).Decode(&kept); err != nil {
		return nil, err
	}
	if kept.Invalidated || kept.Number != last.number || kept.At != s.At {
		return nil, mongo.ErrNoDocuments
	}
	return kept.Image, nil
}
