package conn

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

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// More server error codes, for DDL and failovers.
const (
	codeHostUnreachable          = 6
	codeHostNotFound             = 7
	CodeUnknownError             = 8
	CodeUnauthorized             = 13
	codeIllegalOperation         = 20
	codeLockTimeout              = 24
	codeLockBusy                 = 46
	CodeCommandNotFound          = 59
	codeNoProgress               = 82 // of a router
	codeRemoteResultsUnavailable = 83 // of a router
	codeNetworkTimeout           = 89
	codeShutdownInProgress       = 91
	codeLockFailed               = 107
	CodeCommandNotSupported      = 115
	CodeConflictingOperation     = 117
	codeNoHost                   = 133 // FailedToSatisfyReadPreference: a router finds no primary
	CodePrimarySteppedDown       = 189
	CodeNoSuchTransaction        = 251
	codeExceededTimeLimit        = 262
	CodeAPIStrict                = 323
	codeSocketException          = 9001
	CodeNotWritablePrimary       = 10107
	codeInterruptedAtShutdown    = 11600
	CodeInterrupted              = 11601
	codeInterruptedReplState     = 11602
	CodeBackgroundOperation      = 12587
	CodeNotPrimaryNoSecondaryOk  = 13435
	codeNotPrimaryOrSecondary    = 13436
	CodeOutOfDiskSpace           = 14031 // less free disk than the server requires
	codeUnknownField             = 40415
	codeCannotConvertIndexUnique = 359
)

// Names that this package uses in a namespace next to the kinds.
const (
	// ScratchName is the prefix of the collections that privilege tests use.
	ScratchName = "dbc_selftest_"
	GatePrefix  = "dbc_fence."
	// FencePrefix precedes the mark in the validator or view of a fence.
	FencePrefix = "dbc-fence:"
	// ClosingMark precedes the mark of a validator fence that is not yet in force on every shard of
	// a cluster.
	ClosingMark = "closing/"

	// MarkBlocked is a counter in a mark that only write blocks increment.
	MarkBlocked = "blocked"

	UnfencedNotes   = "lifted/" // stored in databases, so the word cannot change
	NoteStrays      = "stray/"
	NoteRestore     = "restore/"
	NoteProvisioned = "provisioned/"
	noteOnce        = "once/"
	NoteMoves       = "moves/"
	NoteChunks      = "chunks/"
)

// Collection is an entry of listCollections.
type Collection struct {
	Name    string   `bson:"name"`
	Type    string   `bson:"type"`
	Options bson.Raw `bson:"options"`
	Info    struct {
		UUID bson.Binary `bson:"uuid"`
	} `bson:"info"`
}

// Is reports whether the collection has the UUID.
func (c Collection) Is(uuid bson.Binary) bool {
	return len(c.Info.UUID.Data) == 16 && bytes.Equal(c.Info.UUID.Data, uuid.Data)
}

// ID returns the UUID as tokens carry it.
func (c Collection) ID() string { return hex.EncodeToString(c.Info.UUID.Data) }

// ShortID returns the beginning of the UUID, for names. It is empty for a view.
func (c Collection) ShortID() string {
	const digits = 12
	id := c.ID()
	return id[:min(digits, len(id))]
}

// FenceMark returns the mark in a fence's validator or view, or "" if there is none.
func (c Collection) FenceMark() string {
	var text string
	if c.Type == "view" {
		// [{$match: {$comment: "dbc-fence:..."}}]
		text, _ = rawdoc.Lookup(c.Options, "pipeline", "0", "$match", "$comment").StringValueOK()
	} else {
		// {$expr: {$eq: ["dbc-fence:...", ""]}}
		text, _ = rawdoc.Lookup(c.Options, "validator", "$expr", "$eq", "0").StringValueOK()
	}
	mark, ok := strings.CutPrefix(text, FencePrefix)
	if !ok {
		return ""
	}
	return mark
}

// ViewOn returns the collection that a view shows, or "".
func (c Collection) ViewOn() string {
	on, _ := c.Options.Lookup("viewOn").StringValueOK()
	return on
}

// List returns the collections and views that match a filter.
func (n *Conn) List(ctx context.Context, filter bson.D) ([]Collection, error) {
	cursor, err := n.DB.ListCollections(ctx, filter)
	if HasCode(err, CodeUnauthorized) {
		err = &PrivilegeError{fmt.Sprintf("%v (listCollections on the database): grant the role that 'dbcontroller roles' prints, or read on %s", ErrNoPrivilege, n.Name), err}
	}
	if err != nil {
		return nil, fmt.Errorf("list collections: %w", err)
	}
	var found []Collection
	if err := All(ctx, cursor, &found); err != nil {
		return nil, fmt.Errorf("list collections: %w", err)
	}
	return found, nil
}

// CollectionNamed returns the collection or view with a name, nil if there is none.
func (n *Conn) CollectionNamed(ctx context.Context, name string) (*Collection, error) {
	found, err := n.Named(ctx, name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// Named returns the collections and views that have one of the names.
func (n *Conn) Named(ctx context.Context, names ...string) ([]Collection, error) {
	found, err := n.names.Ask(ctx, names)
	var some []Collection // found is shared with other callers, so copy
	for _, c := range found {
		if slices.Contains(names, c.Name) {
			some = append(some, c)
		}
	}
	return some, err
}

func (n *Conn) listNamed(ctx context.Context, asked [][]string) ([]Collection, error) {
	return n.List(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: slices.Concat(asked...)}}}})
}

// Mark writes the document of a fence and waits for a majority. A write block leaves no other trace
// in the change stream, so its mark is also its marker.
func (n *Conn) Mark(ctx context.Context, f record.Fence) error {
	n.Pulse.Quicken() // shards must write soon, or the marker arrives late
	id, update := MarkOf(f)
	return n.Note(ctx, id, update)
}

// MarkOf returns the _id of a fence's document in dbc_marks, and the update that Mark makes.
func MarkOf(f record.Fence) (id string, update bson.D) {
	count := bson.D{{Key: "n", Value: int64(1)}}
	// Watch streams select on this counter.
	if f.Class == record.FenceWriteBlock {
		count = append(count, bson.E{Key: MarkBlocked, Value: int64(1)})
	}
	return f.To, bson.D{
		{Key: "$inc", Value: count},
		{Key: "$set", Value: bson.D{
			{Key: "kind", Value: f.Token.Kind}, {Key: "name", Value: f.Token.Name},
			{Key: "id", Value: f.Token.ID}, {Key: "class", Value: string(f.Class)},
		}},
	}
}

// notice is an update of one document in dbc_marks.
type notice struct {
	id     string
	update bson.D
}

// Note updates one document in dbc_marks and waits for a majority.
func (n *Conn) Note(ctx context.Context, id string, update bson.D) error {
	if _, err := n.notes.Ask(ctx, notice{id, update}); err != nil {
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
	return struct{}{}, n.DB.RunCommand(ctx, bson.D{
		{Key: "update", Value: MarksCollection},
		{Key: "updates", Value: updates},
		{Key: "writeConcern", Value: MajorityWithin(ConcernWait)},
	}).Err()
}

// Noted returns a document of dbc_marks, nil if there is none.
func (n *Conn) Noted(ctx context.Context, id string) (bson.Raw, error) {
	raw, err := n.DB.RunCommand(ctx, bson.D{
		{Key: "find", Value: MarksCollection},
		{Key: "filter", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "limit", Value: 1},
		{Key: "singleBatch", Value: true},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}},
	}).Raw()
	if err != nil {
		return nil, fmt.Errorf("read mark %s: %w", id, err)
	}
	doc, err := wire.First(raw)
	if err != nil {
		return nil, fmt.Errorf("read mark %s: %w", id, err)
	}
	return doc, nil
}

// ErrUnfenced reports that a fence was removed and cannot be set again.
var ErrUnfenced = errors.New("the fence was removed")

// Unfenced returns the names, out of asked, whose fences were removed.
func (n *Conn) Unfenced(ctx context.Context, asked []string) (names []string, err error) {
	ids := make(bson.A, len(asked))
	for i, to := range asked {
		ids[i] = UnfencedNotes + to
	}
	// Notes must survive a failover, so read only those that a majority has.
	marks := n.DB.Collection(MarksCollection, options.Collection().SetReadConcern(readconcern.Majority()))
	cursor, err := marks.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("read marks of fences: %w", err)
	}
	var docs []struct {
		ID string `bson:"_id"`
	}
	if err := All(ctx, cursor, &docs); err != nil {
		return nil, fmt.Errorf("read marks of fences: %w", err)
	}
	for _, d := range docs {
		names = append(names, strings.TrimPrefix(d.ID, UnfencedNotes))
	}
	return names, nil
}

// RefuseUnfenced fails if a fence was removed. A caller that paused since then must not take the
// collection away from the application again.
func (n *Conn) RefuseUnfenced(ctx context.Context, f record.Fence) error {
	ended, err := n.ends.Ask(ctx, f.To)
	if err != nil {
		return err
	}
	if slices.Contains(ended, f.To) {
		return Permanent(fmt.Errorf("%w: %s; a new attempt needs a new name", ErrUnfenced, f.To))
	}
	return nil
}

// IsMongos reports whether the server is a router of a sharded cluster. Once a server has answered, it
// needs none: a connection string does not come to name other servers.
func (n *Conn) IsMongos(ctx context.Context) (bool, error) {
	if known := n.mongos.Load(); known != nil {
		return *known, nil
	}
	hello, err := n.Hello(ctx)
	if err != nil {
		return false, err
	}
	msg, _ := hello.Lookup("msg").StringValueOK()
	is := msg == "isdbgrid"
	n.mongos.Store(&is)
	return is, nil
}

// Hello returns how the server describes itself.
func (n *Conn) Hello(ctx context.Context) (bson.Raw, error) {
	raw, err := n.Admin().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if err != nil {
		return nil, fmt.Errorf("ask the server for its type: %w", err)
	}
	return raw, nil
}

var ErrNoPrivilege = errors.New("the database user lacks a privilege")

// PrivilegeError names the privilege to grant. Its text omits the server's message, which repeats
// the whole command.
type PrivilegeError struct {
	Text string
	Err  error // the server's, nil: none
}

func (e *PrivilegeError) Error() string   { return e.Text }
func (e *PrivilegeError) Unwrap() []error { return []error{ErrNoPrivilege, e.Err} }

// WithPrivilege adds the role to grant if the server refused a command for a missing privilege.
func WithPrivilege(err error) error {
	if !HasCode(err, CodeUnauthorized) || errors.Is(err, ErrNoPrivilege) {
		return err
	}
	refused := ""
	var command mongo.CommandError
	if errors.As(err, &command) {
		// The message continues with the whole command, which may hold values.
		what, _, _ := strings.Cut(command.Message, ":")
		refused = " (" + strings.Replace(what, "execute command { ", "run ", 1) + ")"
	}
	return &PrivilegeError{ErrNoPrivilege.Error() + refused +
		": grant the role that 'dbcontroller roles' prints, or readWrite and dbAdmin on the database and clusterMonitor on admin", err}
}

// RetiredMark begins the mark of such a view.
const RetiredMark = "retired/"

// Retired reports whether the collection is the view of a completed version.
func (c Collection) Retired() bool {
	return c.Type == "view" && strings.HasPrefix(c.FenceMark(), RetiredMark)
}

// OccupiedPrefix precedes the UUID in the validator of a collection that occupies a name.
const OccupiedPrefix = "dbc-occupied:"

// Occupies returns the UUID of the collection that this one keeps its name from, or "".
func (c Collection) Occupies() string { return OccupiedBy(c.Options) }

// OccupiedBy is Occupies for the options of a collection, as in an event that creates it.
func OccupiedBy(options bson.Raw) string {
	text, _ := rawdoc.Lookup(options, "validator", "$expr", "$eq", "0").StringValueOK()
	id, ok := strings.CutPrefix(text, OccupiedPrefix)
	if !ok {
		return ""
	}
	return id
}

// OwnOnce matches the markers of a kind.
func OwnOnce(tok record.Token) bson.Regex {
	return bson.Regex{Pattern: "^" + regexp.QuoteMeta(OnceID(tok, ""))}
}

// LabelMark is in the validator of a label, and therefore in the server's details of a refusal:
// {$or: [a tombstone, {$expr: {$eq: ["dbc-label", ""]}}, the label ...]}.
const LabelMark = "dbc-label"

// IsLabel reports whether a validator is a label's.
func IsLabel(validator bson.Raw) bool {
	text, _ := rawdoc.Lookup(validator, "$or", "1", "$expr", "$eq", "0").StringValueOK()
	return text == LabelMark
}

// ByLabel reports whether a label's validator refused a write.
func ByLabel(we mongo.WriteError) bool {
	text, _ := rawdoc.Lookup(we.Details, "details", "clausesNotSatisfied", "1", "details", "specifiedAs", "$expr", "$eq", "0").StringValueOK()
	return text == LabelMark
}

// AsidePrefix begins the names of collections that applications created under the name of a fenced
// kind. They hold application data and are never dropped unless they are empty.
const AsidePrefix = "dbc_aside."

// OnceID returns the _id in dbc_marks of a kind's marker.
func OnceID(tok record.Token, marker string) string {
	of := tok.ID
	if of == "" {
		of = onceKind + tok.Kind
	}
	return noteOnce + of + "/" + marker
}

// FenceMark returns the fence's mark from the description of a collMod. It is empty for another
// collMod, and for a fence that some shards do not have yet.
func FenceMark(description bson.Raw) string { return fenceMarkIn(description, 0) }

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
			if mark, ok := strings.CutPrefix(text, FencePrefix); ok && !strings.HasPrefix(mark, ClosingMark) {
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

// LookupString returns a string in a document, or "".
func LookupString(v bson.RawValue, key string) string {
	doc, ok := v.DocumentOK()
	if !ok {
		return ""
	}
	text, _ := doc.Lookup(key).StringValueOK()
	return text
}

// onceKind replaces the UUID in a marker's key if tokens have no UUID.
const onceKind = "kind "
