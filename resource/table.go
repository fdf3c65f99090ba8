package resource

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/vrunner"
)

// Attempts is the maximum number of attempts to read or change a resource that others change
// meanwhile.
const Attempts = 10

// Config describes the resources of one type.
type Config[M proto.Message] struct {
	// Kind is the kind of the records. It is required.
	Kind string
	// Pattern is the pattern of the names. It has collections and ids in turn, as in
	// "projects/{project}/secrets/{secret}", or a single id, "{guid}".
	//
	// Patterns are further ones, such as "organizations/{organization}/secrets/{secret}", for resources
	// with parents of several types. All have a parent, and end with the same collection and id. The
	// collections of a name must tell which one it has. Without both, the patterns are those of the
	// annotation google.api.resource of M.
	Pattern  string
	Patterns []string
	// NameField is the field of M that holds the name. "" means name.
	NameField string
	// MaxID bounds each id of a name, in bytes. 0 means 128.
	MaxID int
	// NewID returns an id for a resource that is created without one; RandomID is such a function.
	// Nil means that clients must give the id.
	NewID func() string
	// Revision describes how M counts its changes. The zero value means an int64 field named
	// revision.
	Revision Revision[M]
	// Check refuses values that clients must not set, with listing.Invalid. It may normalize
	// values. The name and revision of m are set. before is the stored resource, or an invalid
	// message (nil) for a new one. Nil accepts everything.
	Check func(ctx context.Context, m, before M) error
	// Sparse names the fields that a record omits if they are an empty string or 0. Some such
	// values cannot be converted by a lens: a 0 that means never is not a time.
	Sparse []string
	// References are the fields that hold names of another service's resources. During that
	// service's migration each resource has two names, and filters of lists and watches find both.
	// Nil means none.
	References []listing.Reference
	// Within narrows a list or watch by fields of its request that have no standard names. Nil
	// narrows nothing.
	Within func(req proto.Message) Within
	// Parts describes the additional records of a resource. Nil means none.
	Parts *Parts[M]
	// Owner makes the resources children of the resources of another table. With the zero value
	// they have no owner, and the parent in their names need not exist.
	Owner Owner
}

// Within is a range: the resources whose names begin with Prefix and that match Where.
type Within struct {
	Prefix string
	Where  listing.Filter
}

// Revision describes how a message identifies its state.
type Revision[M proto.Message] struct {
	// Field is the name of the field. The database compares it.
	Field string
	// First sets the field of a new message, to a value that no earlier resource of that name had.
	// Next sets it after a change. Set both, or neither to count up an int64 field.
	First, Next func(M)
	// Text describes the revision to a client that expected another one. Nil means the field and
	// its value.
	Text func(M) string
}

// Table is the resources of one type in a store. Its methods are safe for concurrent use.
type Table[M proto.Message] struct {
	store    vrunner.Store
	cfg      Config[M]
	pattern  patterns
	message  protoreflect.MessageDescriptor
	name     protoreflect.FieldDescriptor
	revision protoreflect.FieldDescriptor
	children []child // New of the child tables adds them, before any request
	// Refer adds these, before any request.
	targets   []*reference[M]
	referrers []follower // of other tables, or of this one
	turns     *turns
}

// Declared is a Store that knows the declared kinds. With it, a program reports an undeclared kind
// when it starts. Without it, all writes of that kind would fail later.
type Declared interface {
	Declares(kind string) bool
}

// New returns a table over a store. It panics if the configuration does not fit M, as a mux does
// with a bad pattern, so that every test finds the mistake.
func New[M proto.Message](store vrunner.Store, cfg Config[M]) *Table[M] {
	t, err := newTable(store, cfg)
	if err != nil {
		panic(fmt.Sprintf("resource: table of %s: %v", cfg.Kind, err))
	}
	return t
}

func newTable[M proto.Message](store vrunner.Store, cfg Config[M]) (*Table[M], error) {
	var none M // a nil pointer of a generated type knows its descriptor
	t := &Table[M]{store: store, message: none.ProtoReflect().Descriptor(), turns: newTurns()}
	// An alias of two fields would make stored data ambiguous.
	if err := protodoc.CheckAliases(t.message); err != nil {
		return nil, err
	}
	if cfg.Kind == "" {
		return nil, fmt.Errorf("no Kind")
	}
	if d, ok := store.(Declared); ok {
		kinds := []string{cfg.Kind}
		if cfg.Parts != nil {
			kinds = append(kinds, cfg.Parts.Kind)
		}
		for _, kind := range kinds {
			if !d.Declares(kind) {
				return nil, fmt.Errorf("kind %s is not declared: name it in a transformer, or in Kinds of the Version", kind)
			}
		}
	}
	if cfg.MaxID <= 0 {
		cfg.MaxID = defaultMaxID
	}
	if cfg.NameField == "" {
		cfg.NameField = "name"
	}
	var err error
	if t.pattern, err = parsePatterns(append([]string{cfg.Pattern}, cfg.Patterns...), t.message, cfg.MaxID); err != nil {
		return nil, err
	}
	if t.name = t.message.Fields().ByName(protoreflect.Name(cfg.NameField)); t.name == nil || t.name.Kind() != protoreflect.StringKind || t.name.IsList() {
		return nil, fmt.Errorf("%s has no string field %s to hold the name: set NameField", t.message.FullName(), cfg.NameField)
	}
	if cfg.Revision.Field == "" {
		cfg.Revision.Field = "revision"
	}
	t.revision = t.message.Fields().ByName(protoreflect.Name(cfg.Revision.Field))
	// Without First and Next the table counts by itself, which needs a number.
	counts := cfg.Revision.First != nil && cfg.Revision.Next != nil
	if t.revision == nil || t.revision.IsList() || t.revision.IsMap() || !counts && t.revision.Kind() != protoreflect.Int64Kind {
		return nil, fmt.Errorf("%s has no int64 field %s to count its changes: add one, or set Revision with First and Next", t.message.FullName(), cfg.Revision.Field)
	}
	if cfg.Revision.Text == nil {
		cfg.Revision.Text = func(m M) string {
			return fmt.Sprintf("%s is %v", cfg.Revision.Field, m.ProtoReflect().Get(t.revision))
		}
	}
	if !counts {
		// Random, because a resource with the same name may have been deleted before.
		cfg.Revision.First = func(m M) { m.ProtoReflect().Set(t.revision, protoreflect.ValueOfInt64(firstRevision())) }
		cfg.Revision.Next = func(m M) {
			r := m.ProtoReflect()
			r.Set(t.revision, protoreflect.ValueOfInt64(r.Get(t.revision).Int()+1))
		}
	}
	if cfg.Check == nil {
		cfg.Check = func(context.Context, M, M) error { return nil }
	}
	if cfg.Within == nil {
		cfg.Within = func(proto.Message) Within { return Within{} }
	}
	for _, field := range append([]string{}, cfg.Sparse...) {
		if t.message.Fields().ByName(protoreflect.Name(field)) == nil {
			return nil, fmt.Errorf("%s has no field %s, which Sparse names", t.message.FullName(), field)
		}
	}
	for _, r := range cfg.References {
		if err := r.Check(t.message); err != nil {
			return nil, fmt.Errorf("References: %w", err) //nolint:staticcheck // ST1005: it is the name of a field of Config
		}
	}
	if cfg.Parts != nil && t.message.Fields().ByName(protoreflect.Name(cfg.Parts.Field)) == nil {
		return nil, fmt.Errorf("%s has no field %s, which Parts names", t.message.FullName(), cfg.Parts.Field)
	}
	t.cfg = cfg
	// Last: the owner must not keep a table that New refuses.
	if cfg.Owner.Table != nil {
		if err := cfg.Owner.Table.adopt(t.pattern, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// firstRevision returns a random revision. A change compares the revision that it has read, and a
// resource that was deleted and created again must not look unchanged. It is below 2^52, so that
// JavaScript represents it exactly.
func firstRevision() int64 { return mathrand.Int64N(1<<52) + 1 }

// RandomID returns a unique id: 26 random lower-case letters and digits.
func RandomID() string { return strings.ToLower(rand.Text()) }

// fresh returns an empty message.
func (t *Table[M]) fresh() M {
	var none M
	return none.ProtoReflect().New().Interface().(M) //nolint:forcetypeassert // a message makes its own type
}

func (t *Table[M]) nameOf(m M) string { return m.ProtoReflect().Get(t.name).String() }

func (t *Table[M]) setName(m M, name string) {
	m.ProtoReflect().Set(t.name, protoreflect.ValueOfString(name))
}

// about returns a store's error about a resource in the form for clients. The store's own text has
// kinds and places, which an API does not show.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, apiversion.Known(err))
}
