package mongostore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"dbcontroller.dev/record"
)

// More server error codes, for DDL and failovers.
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
	codeOutOfDiskSpace           = 14031 // less free disk than the server requires
	codeUnknownField             = 40415
	codeCannotConvertIndexUnique = 359
)

// Names that this package uses in a namespace next to the kinds.
const (
	// scratchName is the prefix of the collections that privilege tests use.
	scratchName = "dbc_selftest_"
	gatePrefix  = "dbc_fence."
	// fencePrefix precedes the mark in the validator or view of a fence.
	fencePrefix = "dbc-fence:"
	// closingMark precedes the mark of a validator fence that is not yet in force on every shard of
	// a cluster.
	closingMark = "closing/"

	// markBlocked is a counter in a mark that only write blocks increment.
	markBlocked = "blocked"

	unfencedNotes   = "lifted/" // stored in databases, so the word cannot change
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

// fenceMark returns the mark in a fence's validator or view, or "" if there is none.
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

// viewOn returns the collection that a view shows, or "".
func (c collection) viewOn() string {
	on, _ := c.Options.Lookup("viewOn").StringValueOK()
	return on
}

// list returns the collections and views that match a filter.
func (n *Conn) list(ctx context.Context, filter bson.D) ([]collection, error) {
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

// collectionNamed returns the collection or view with a name, nil if there is none.
func (n *Conn) collectionNamed(ctx context.Context, name string) (*collection, error) {
	found, err := n.named(ctx, name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// named returns the collections and views that have one of the names.
func (n *Conn) named(ctx context.Context, names ...string) ([]collection, error) {
	found, err := n.names.ask(ctx, names)
	var some []collection // found is shared with other callers, so copy
	for _, c := range found {
		if slices.Contains(names, c.Name) {
			some = append(some, c)
		}
	}
	return some, err
}

func (n *Conn) listNamed(ctx context.Context, asked [][]string) ([]collection, error) {
	return n.list(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: slices.Concat(asked...)}}}})
}

// mark writes the document of a fence and waits for a majority. A write block leaves no other trace
// in the change stream, so its mark is also its marker.
func (n *Conn) mark(ctx context.Context, f record.Fence) error {
	n.pulse.quicken() // shards must write soon, or the marker arrives late
	count := bson.D{{Key: "n", Value: int64(1)}}
	// Watch streams select on this counter.
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

// notice is an update of one document in dbc_marks.
type notice struct {
	id     string
	update bson.D
}

// note updates one document in dbc_marks and waits for a majority.
func (n *Conn) note(ctx context.Context, id string, update bson.D) error {
	if _, err := n.notes.ask(ctx, notice{id, update}); err != nil {
		return fmt.Errorf("write mark %s: %w", id, err)
	}
	return nil
}

func (n *Conn) writeNotes(ctx context.Context, asked []notice) (struct{}, error) {
	updates := make(bson.A, len(asked))
	for i, o := range asked {
		updates[i] = bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: o.id}}},
			{Key: "u", Value: o.update},
			{Key: "upsert", Value: true},
		}
	}
	// The majority matters: a fence that a failover could forget is no fence.
	return struct{}{}, n.db.RunCommand(ctx, bson.D{
		{Key: "update", Value: marksCollection},
		{Key: "updates", Value: updates},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
}

// noted returns a document of dbc_marks, nil if there is none.
func (n *Conn) noted(ctx context.Context, id string) (bson.Raw, error) {
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

// errUnfenced reports that a fence was removed and cannot be set again.
var errUnfenced = errors.New("the fence was removed")

// unfenced returns the names, out of asked, whose fences were removed.
func (n *Conn) unfenced(ctx context.Context, asked []string) (names []string, err error) {
	ids := make(bson.A, len(asked))
	for i, to := range asked {
		ids[i] = unfencedNotes + to
	}
	// Notes must survive a failover, so read only those that a majority has.
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

// refuseUnfenced fails if a fence was removed. A caller that paused since then must not take the
// collection away from the application again.
func (n *Conn) refuseUnfenced(ctx context.Context, f record.Fence) error {
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
func (n *Conn) isMongos(ctx context.Context) (bool, error) {
	hello, err := n.hello(ctx)
	if err != nil {
		return false, err
	}
	msg, _ := hello.Lookup("msg").StringValueOK()
	return msg == "isdbgrid", nil
}

func (n *Conn) hello(ctx context.Context) (bson.Raw, error) {
	raw, err := n.admin().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if err != nil {
		return nil, fmt.Errorf("ask the server for its type: %w", err)
	}
	return raw, nil
}

var errNoPrivilege = errors.New("the database user lacks a privilege")

// privilegeError names the privilege to grant. Its text omits the server's message, which repeats
// the whole command.
type privilegeError struct {
	text string
	err  error
}

func (e *privilegeError) Error() string   { return e.text }
func (e *privilegeError) Unwrap() []error { return []error{errNoPrivilege, e.err} }

// withPrivilege adds the role to grant if the server refused a command for a missing privilege.
func withPrivilege(err error) error {
	if !hasCode(err, codeUnauthorized) || errors.Is(err, errNoPrivilege) {
		return err
	}
	refused := ""
	var command mongo.CommandError
	if errors.As(err, &command) {
		// The message continues with the whole command, which may hold values.
		what, _, _ := strings.Cut(command.Message, ":")
		refused = " (" + strings.Replace(what, "execute command { ", "run ", 1) + ")"
	}
	return &privilegeError{errNoPrivilege.Error() + refused +
		": grant the role that 'dbcontroller roles' prints, or readWrite and dbAdmin on the database and clusterMonitor on admin", err}
}

// retiredMark begins the mark of such a view.
const retiredMark = "retired/"

// retired reports whether the collection is the view of a completed version.
func (c collection) retired() bool {
	return c.Type == "view" && strings.HasPrefix(c.fenceMark(), retiredMark)
}

// occupiedPrefix precedes the UUID in the validator of a collection that occupies a name.
const occupiedPrefix = "dbc-occupied:"

// occupies returns the UUID of the collection that this one keeps its name from, or "".
func (c collection) occupies() string {
	text, _ := c.Options.Lookup("validator", "$expr", "$eq", "0").StringValueOK()
	id, ok := strings.CutPrefix(text, occupiedPrefix)
	if !ok {
		return ""
	}
	return id
}

// ownOnce matches the markers of a kind.
func ownOnce(tok record.Token) bson.Regex {
	return bson.Regex{Pattern: "^" + regexp.QuoteMeta(onceID(tok, ""))}
}

// labelMark is in the validator of a label, and therefore in the server's details of a refusal:
// {$or: [a tombstone, {$expr: {$eq: ["dbc-label", ""]}}, the label ...]}.
const labelMark = "dbc-label"

// isLabel reports whether a validator is a label's.
func isLabel(validator bson.Raw) bool {
	text, _ := validator.Lookup("$or", "1", "$expr", "$eq", "0").StringValueOK()
	return text == labelMark
}

// byLabel reports whether a label's validator refused a write.
func byLabel(we mongo.WriteError) bool {
	text, _ := we.Details.Lookup("details", "clausesNotSatisfied", "1", "details", "specifiedAs", "$expr", "$eq", "0").StringValueOK()
	return text == labelMark
}

// asidePrefix begins the names of collections that applications created under the name of a fenced
// kind. They hold application data and are never dropped unless they are empty.
const asidePrefix = "dbc_aside."

// onceID returns the _id in dbc_marks of a kind's marker.
func onceID(tok record.Token, marker string) string {
	of := tok.ID
	if of == "" {
		of = onceKind + tok.Kind
	}
	return noteOnce + of + "/" + marker
}

// fenceMark returns the fence's mark from the description of a collMod. It is empty for another
// collMod, and for a fence that some shards do not have yet.
func fenceMark(description bson.Raw) string { return fenceMarkIn(description, 0) }

func fenceMarkIn(description bson.Raw, depth int) string {
	// A fence's own mark is three levels deep. An event of a hostile server can have millions of
	// levels. Without a bound, the stack would overflow, and the process would end.
	const deepest = 50
	if depth > deepest {
		return ""
	}
	values, err := description.Values()
	if err != nil {
		return ""
	}
	for _, v := range values {
		switch v.Type {
		case bson.TypeString:
			// A copied mark with "closing" is not yet in force everywhere, so it is no marker.
			text, _ := v.StringValueOK() // not so for a string without its end
			if mark, ok := strings.CutPrefix(text, fencePrefix); ok && !strings.HasPrefix(mark, closingMark) {
				return mark
			}
		case bson.TypeEmbeddedDocument, bson.TypeArray:
			if mark := fenceMarkIn(bson.Raw(v.Value), depth+1); mark != "" {
				return mark
			}
		}
	}
	return ""
}

func lookupString(v bson.RawValue, key string) string {
	doc, ok := v.DocumentOK()
	if !ok {
		return ""
	}
	text, _ := doc.Lookup(key).StringValueOK()
	return text
}

// onceKind replaces the UUID in a marker's key if tokens have no UUID.
const onceKind = "kind "
