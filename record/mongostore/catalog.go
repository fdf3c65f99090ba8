package mongostore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"dbcontroller.dev/record"
)

// More server error codes, of DDL and of failovers.
const (
	codeHostUnreachable          = 6
	codeUnknownError             = 8
	codeUnauthorized             = 13
	codeIllegalOperation         = 20
	codeLockTimeout              = 24
	codeLockBusy                 = 46
	codeCommandNotFound          = 59
	codeNetworkTimeout           = 89
	codeShutdownInProgress       = 91
	codeLockFailed               = 107
	codeConflictingOperation     = 117
	codePrimarySteppedDown       = 189
	codeNoSuchTransaction        = 251
	codeExceededTimeLimit        = 262
	codeAPIStrict                = 323
	codeNotWritablePrimary       = 10107
	codeInterruptedAtShutdown    = 11600
	codeInterrupted              = 11601
	codeInterruptedReplState     = 11602
	codeBackgroundOperation      = 12587
	codeNotPrimaryNoSecondaryOk  = 13435
	codeNotPrimaryOrSecondary    = 13436
	codeOutOfDiskSpace           = 14031 // less than the server wants to see free: to build an index, say
	codeUnknownField             = 40415
	codeCannotConvertIndexUnique = 359
)

// Names of what this package keeps in a namespace next to the kinds.
const (
	// scratchName begins the names of the collections that privileges are tried with.
	scratchName = "dbc_selftest_"
	gatePrefix  = "dbc_fence."
	// fencePrefix stands before the mark in the validators and views of fences.
	fencePrefix = "dbc-fence:"
	// closingMark stands before the mark of a validator fence that is not yet in force on
	// every shard of a cluster.
	closingMark = "closing/"

	// markBlocked is the field of a mark that only write blocks count up.
	markBlocked = "blocked"

	unfencedNotes   = "lifted/" // the word of the format, which stays as it is
	noteStrays      = "stray/"
	noteRestore     = "restore/"
	noteProvisioned = "provisioned/"
	noteOnce        = "once/"
)

// collection is an entry of listCollections.
type collection struct {
	Name    string   `bson:"name"`
	Type    string   `bson:"type"`
	Options bson.Raw `bson:"options"`
	Info    struct {
		UUID bson.Binary `bson:"uuid"`
	} `bson:"info"`
}

func (c collection) is(uuid bson.Binary) bool {
	return len(c.Info.UUID.Data) == 16 && bytes.Equal(c.Info.UUID.Data, uuid.Data)
}

func (c collection) id() string { return hex.EncodeToString(c.Info.UUID.Data) }

// fenceMark returns the mark of a fence's validator or view, or "".
func (c collection) fenceMark() string {
	var text string
	if c.Type == "view" {
		// [{$match: {$comment: "dbc-fence:..."}}]
		text, _ = c.Options.Lookup("pipeline", "0", "$match", "$comment").StringValueOK()
	} else {
		// {$expr: {$eq: ["dbc-fence:...", ""]}}
		text, _ = c.Options.Lookup("validator", "$expr", "$eq", "0").StringValueOK()
	}
	mark, ok := strings.CutPrefix(text, fencePrefix)
	if !ok {
		return ""
	}
	return mark
}

// viewOn is what a view shows, or "".
func (c collection) viewOn() string {
	on, _ := c.Options.Lookup("viewOn").StringValueOK()
	return on
}

// list returns the collections and views that a filter selects.
func (n *Namespace) list(ctx context.Context, filter bson.D) ([]collection, error) {
	cursor, err := n.db.ListCollections(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("list collections: %w", err)
	}
	var found []collection
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("list collections: %w", err)
	}
	return found, nil
}

// collectionNamed returns the collection or view of a name, nil if there is none.
func (n *Namespace) collectionNamed(ctx context.Context, name string) (*collection, error) {
	found, err := n.named(ctx, name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// named returns the collections and views that have one of the names.
func (n *Namespace) named(ctx context.Context, names ...string) ([]collection, error) {
	found, err := n.names.ask(ctx, names)
	var some []collection // what is found is shared with others
	for _, c := range found {
		if slices.Contains(names, c.Name) {
			some = append(some, c)
		}
	}
	return some, err
}

func (n *Namespace) listNamed(ctx context.Context, asked [][]string) ([]collection, error) {
	return n.list(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: slices.Concat(asked...)}}}})
}

// mark writes the document of a fence, acknowledged by a majority.
// That of a write block, which leaves no other trace in the changes, is their marker.
func (n *Namespace) mark(ctx context.Context, f record.Fence) error {
	n.pulse.quicken() // what waits for the marker waits for the shards
	count := bson.D{{Key: "n", Value: int64(1)}}
	if f.Class == record.FenceWriteBlock {
		count = append(count, bson.E{Key: markBlocked, Value: int64(1)})
	}
	return n.note(ctx, f.To, bson.D{
		{Key: "$inc", Value: count},
		{Key: "$set", Value: bson.D{
			{Key: "kind", Value: f.Token.Kind}, {Key: "name", Value: f.Token.Name},
			{Key: "id", Value: f.Token.ID}, {Key: "class", Value: string(f.Class)},
		}},
	})
}

// notice is an update of one document of the marks.
type notice struct {
	id     string
	update bson.D
}

// note updates one document of the marks, acknowledged by a majority.
func (n *Namespace) note(ctx context.Context, id string, update bson.D) error {
	if _, err := n.notes.ask(ctx, notice{id, update}); err != nil {
		return fmt.Errorf("write mark %s: %w", id, err)
	}
	return nil
}

func (n *Namespace) writeNotes(ctx context.Context, asked []notice) (struct{}, error) {
	updates := make(bson.A, len(asked))
	for i, o := range asked {
		updates[i] = bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: o.id}}},
			{Key: "u", Value: o.update},
			{Key: "upsert", Value: true},
		}
	}
	return struct{}{}, n.db.RunCommand(ctx, bson.D{
		{Key: "update", Value: marksCollection},
		{Key: "updates", Value: updates},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
}

// noted returns a document of the marks, nil if there is none.
func (n *Namespace) noted(ctx context.Context, id string) (bson.Raw, error) {
	raw, err := n.db.RunCommand(ctx, bson.D{
		{Key: "find", Value: marksCollection},
		{Key: "filter", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "limit", Value: 1},
		{Key: "singleBatch", Value: true},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}},
	}).Raw()
	if err != nil {
		return nil, fmt.Errorf("read mark %s: %w", id, err)
	}
	doc, _ := raw.Lookup("cursor", "firstBatch", "0").DocumentOK()
	return doc, nil
}

// errUnfenced: a fence has ended, and can no longer be set.
var errUnfenced = errors.New("the fence was removed")

// unfenced returns those names to which fences have ended.
func (n *Namespace) unfenced(ctx context.Context, asked []string) (names []string, err error) {
	ids := make(bson.A, len(asked))
	for i, to := range asked {
		ids[i] = unfencedNotes + to
	}
	marks := n.db.Collection(marksCollection, options.Collection().SetReadConcern(readconcern.Majority()))
	cursor, err := marks.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("read marks of fences: %w", err)
	}
	var docs []struct {
		ID string `bson:"_id"`
	}
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("read marks of fences: %w", err)
	}
	for _, d := range docs {
		names = append(names, strings.TrimPrefix(d.ID, unfencedNotes))
	}
	return names, nil
}

// refuseUnfenced fails when a fence was removed: a caller that slept since must not take
// the application's collection away from it again.
func (n *Namespace) refuseUnfenced(ctx context.Context, f record.Fence) error {
	ended, err := n.ends.ask(ctx, f.To)
	if err != nil {
		return err
	}
	if slices.Contains(ended, f.To) {
		return permanent(fmt.Errorf("%w: %s; a new attempt needs a new name", errUnfenced, f.To))
	}
	return nil
}

// isMongos reports whether the server is a router of a sharded cluster.
func (n *Namespace) isMongos(ctx context.Context) (bool, error) {
	hello, err := n.hello(ctx)
	if err != nil {
		return false, err
	}
	msg, _ := hello.Lookup("msg").StringValueOK()
	return msg == "isdbgrid", nil
}

func (n *Namespace) hello(ctx context.Context) (bson.Raw, error) {
	raw, err := n.admin().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if err != nil {
		return nil, fmt.Errorf("ask the server what it is: %w", err)
	}
	return raw, nil
}

var errNoPrivilege = errors.New("the database user lacks a privilege")

// privilegeError names what to grant. The server's message is left out of the text: it
// repeats the whole command.
type privilegeError struct {
	text string
	err  error
}

func (e *privilegeError) Error() string   { return e.text }
func (e *privilegeError) Unwrap() []error { return []error{errNoPrivilege, e.err} }

// withPrivilege adds what to grant when the server refused a command for want of it.
func withPrivilege(err error) error {
	if !hasCode(err, codeUnauthorized) || errors.Is(err, errNoPrivilege) {
		return err
	}
	refused := ""
	var command mongo.CommandError
	if errors.As(err, &command) {
		what, _, _ := strings.Cut(command.Message, ":")
		refused = " (" + strings.Replace(what, "execute command { ", "run ", 1) + ")"
	}
	return &privilegeError{errNoPrivilege.Error() + refused +
		": grant the role that 'dbcontroller roles' prints, or readWrite and dbAdmin on the database and clusterMonitor on admin", err}
}
