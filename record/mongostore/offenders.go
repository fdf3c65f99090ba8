package mongostore

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

	"dbcontroller.dev/record"
)

// Codes of answers about a document that an index has no entry for, but those of geographic
// indexes (geoCodes).
var indexCodes = []int{171, 7246301, 13068, 16766, 17261, 17262}

// isOfDocument reports whether a build has failed because of a document.
func isOfDocument(err error) bool {
	return hasCode(err, indexCodes...) || hasCode(err, geoCodes...)
}

// Bounds of a search for what breaks an index.
const (
	// offenderNames is how many are named; all are counted.
	offenderNames = 100
	// offendersAgain is how long a search counts: the builder tries again every second,
	// and each search reads the collection.
	offendersAgain = time.Minute
)

// offending is the latest search, of one collection.
type offending struct {
	mu   sync.Mutex
	of   string // the collection and its indexes
	at   time.Time
	text string
}

// offenders names all documents that a build cannot take; the server names none, and ends at
// the first. They are found by the server itself: it gets those that may be meant into an empty
// collection with the same indexes, and refuses them one by one.
func (n *Namespace) offenders(ctx context.Context, tok record.Token, specs []bson.D, cause error) error {
	n.offending.mu.Lock()
	defer n.offending.mu.Unlock()
	of := fmt.Sprint(tok.ID, specs)
	if n.offending.of != of || time.Since(n.offending.at) > offendersAgain {
		text, err := n.searchOffenders(ctx, tok, specs)
		if err != nil {
			return errors.Join(concealed(cause), fmt.Errorf("which documents break it: %w", concealed(err)))
		}
		n.offending.of, n.offending.at, n.offending.text = of, time.Now(), text
	}
	if n.offending.text == "" {
		return concealed(cause) // they have gone since
	}
	return &record.ConcealedError{Err: fmt.Errorf("%s: %w", n.offending.text, cause), Text: n.offending.text}
}

func (n *Namespace) searchOffenders(ctx context.Context, tok record.Token, specs []bson.D) (text string, err error) {
	// That a unique one compares documents with each other is for the build itself.
	specs = slices.Clone(specs)
	for i, spec := range specs {
		specs[i] = slices.DeleteFunc(slices.Clone(spec), func(e bson.E) bool { return e.Key == "unique" })
	}
	trial := n.db.Collection("dbc_indexes_" + strings.ToLower(rand.Text()[:10])) // as those of syncer.TrialPrefix
	defer func() { err = errors.Join(err, trial.Drop(context.WithoutCancel(ctx))) }()
	cmd := bson.D{{Key: "createIndexes", Value: trial.Name()}, {Key: "indexes", Value: specs}}
	if err := n.db.RunCommand(ctx, cmd).Err(); err != nil {
		return "", err
	}
	source := n.db.Collection(tok.Name, options.Collection().SetReadConcern(readconcern.Majority()))
	cursor, err := source.Find(ctx, mayOffend(specs))
	if err != nil {
		return "", err
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read
	var found []string
	count := 0
	page, size := []any{}, 0
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
				found = append(found, fmt.Sprintf("%s (%s)", nameOf(doc), refusedText(we.WriteError)))
			}
		}
		page, size = page[:0], 0
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
	text = fmt.Sprintf("%d documents have values that it does not take: %s", count, strings.Join(found, "; "))
	if more := count - len(found); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text + ": correct them where they come from", nil
}

func nameOf(doc bson.Raw) string {
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		return "a document without _id"
	}
	return key.String()
}

// mayOffend is the filter of the documents that one of the indexes may refuse. Those of
// several plain fields refuse lists in two of them only.
func mayOffend(specs []bson.D) bson.D {
	var any bson.A
	for _, spec := range specs {
		key, _ := lookup(spec, "key").(bson.D)
		var lists bson.A
		for _, e := range key {
			if _, special := e.Value.(string); special || strings.HasSuffix(e.Key, "$**") || strings.HasPrefix(e.Key, "$") {
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
