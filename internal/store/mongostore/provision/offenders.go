package provision

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// indexCodes are the error codes for a document that an index has no entry for, except those of
// geographic indexes (geoCodes).
var indexCodes = []int{171, 7246301, 13068, 16766, 17261, 17262}

// isOfDocument reports whether an index build failed because of a document.
func isOfDocument(err error) bool {
	return conn.HasCode(err, indexCodes...) || conn.HasCode(err, conn.GeoCodes...)
}

// Limits of a search for the documents that break an index.
const (
	// offenderNames bounds the documents that are named. All are counted.
	offenderNames = 100
	// offendersAgain is how long the result of a search is used. The builder retries every second,
	// and each search reads the collection.
	offendersAgain = time.Minute
)

// offending is the result of the latest search, for one collection.
type offending struct {
	mu   sync.Mutex
	of   string // the collection and its indexes
	at   time.Time
	text string
}

// offenders names all documents that an index build cannot accept. The server names none and stops
// at the first. The search copies the candidates into an empty collection with the same indexes,
// where the server refuses them one by one.
func (n *Collections) offenders(ctx context.Context, tok record.Token, specs []bson.D, cause error) error {
	n.offending.mu.Lock()
	defer n.offending.mu.Unlock()
	of := fmt.Sprint(tok.ID, specs)
	if n.offending.of != of || time.Since(n.offending.at) > offendersAgain {
		text, err := n.searchOffenders(ctx, tok, specs)
		if err != nil {
			return errors.Join(conn.Concealed(cause), fmt.Errorf("look for documents that break it: %w", conn.Concealed(err)))
		}
		n.offending.of, n.offending.at, n.offending.text = of, time.Now(), text
	}
	if n.offending.text == "" {
		return conn.Concealed(cause) // they are gone by now
	}
	return &record.ConcealedError{Err: fmt.Errorf("%s: %w", n.offending.text, cause), Text: n.offending.text}
}

func (n *Collections) searchOffenders(ctx context.Context, tok record.Token, specs []bson.D) (text string, err error) {
	// Skip uniqueness: comparing documents with each other is the job of the build itself.
	specs = slices.Clone(specs)
	for i, spec := range specs {
		specs[i] = slices.DeleteFunc(slices.Clone(spec), func(e bson.E) bool { return e.Key == "unique" })
	}
	trial := n.DB.Collection("dbc_indexes_" + strings.ToLower(rand.Text()[:10])) // like syncer.TrialPrefix
	defer func() { err = errors.Join(err, trial.Drop(context.WithoutCancel(ctx))) }()
	cmd := bson.D{{Key: "createIndexes", Value: trial.Name()}, {Key: "indexes", Value: specs}}
	if err := n.DB.RunCommand(ctx, cmd).Err(); err != nil {
		return "", err
	}
	source := n.DB.Collection(tok.Name, options.Collection().SetReadConcern(readconcern.Majority()))
	cursor, err := source.Find(ctx, mayOffend(specs))
	if err != nil {
		return "", err
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read
	var found []string
	count := 0
	page, size := []any{}, 0
	// Only the server knows exactly which values an index accepts.
	try := func() error {
		if len(page) == 0 {
			return nil
		}
		_, err := trial.InsertMany(ctx, page, options.InsertMany().SetOrdered(false))
		var refused mongo.BulkWriteException
		if err != nil && (!errors.As(err, &refused) || refused.WriteConcernError != nil) {
			return err
		}
		for _, we := range refused.WriteErrors {
			if we.Index < 0 || we.Index >= len(page) {
				continue
			}
			count++
			if doc, _ := page[we.Index].(bson.Raw); len(found) < offenderNames {
				found = append(found, fmt.Sprintf("%s (%s)", nameOf(doc), conn.RefusedText(we.WriteError)))
			}
		}
		page, size = page[:0], 0
		// Keep the trial collection small: it needs only one page at a time.
		_, err = trial.DeleteMany(ctx, bson.D{})
		return err
	}
	for cursor.Next(ctx) {
		page, size = append(page, slices.Clone(cursor.Current)), size+len(cursor.Current)
		if len(page) == 1000 || size > 8<<20 {
			if err := try(); err != nil {
				return "", err
			}
		}
	}
	if err := errors.Join(cursor.Err(), try()); err != nil || count == 0 {
		return "", err
	}
	text = fmt.Sprintf("%d documents have values that it refuses: %s", count, strings.Join(found, "; "))
	if more := count - len(found); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text + ": correct them at their source", nil
}

func nameOf(doc bson.Raw) string {
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		return "a document without _id"
	}
	return key.String()
}

// mayOffend returns the filter for the documents that one of the indexes may refuse. An index of
// several plain fields refuses only documents with lists in two of them.
func mayOffend(specs []bson.D) bson.D {
	var any bson.A
	for _, spec := range specs {
		key, _ := lookup(spec, "key").(bson.D)
		var lists bson.A
		for _, e := range key {
			if _, special := e.Value.(string); special || strings.HasSuffix(e.Key, "$**") || strings.HasPrefix(e.Key, "$") {
				// Such an index can refuse any document.
				return bson.D{}
			}
			lists = append(lists, bson.D{{Key: "$cond", Value: bson.A{bson.D{{Key: "$isArray", Value: "$" + e.Key}}, 1, 0}}})
		}
		any = append(any, bson.D{{Key: "$gte", Value: bson.A{bson.D{{Key: "$sum", Value: lists}}, 2}}})
	}
	if len(any) == 0 {
		return bson.D{}
	}
	return bson.D{{Key: "$expr", Value: bson.D{{Key: "$or", Value: any}}}}
}
