package secrets

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller/apiversion"
	"dbcontroller/apiversion/listing"
	secretsv1 "dbcontroller/gen/secrets/v1"
	secretsv2 "dbcontroller/gen/secrets/v2"
	"dbcontroller/transform"
)

// The services and resources of both versions.
var (
	serviceV1 = secretsv1.File_secrets_v1_secrets_proto.Services().ByName("SecretService")
	serviceV2 = secretsv2.File_secrets_v2_secrets_proto.Services().ByName("SecretService")
	secretV1  = (*secretsv1.Secret)(nil).ProtoReflect().Descriptor()
	secretV2  = (*secretsv2.Secret)(nil).ProtoReflect().Descriptor()
)

// Table pairs the methods of both versions. Requests and responses follow from the lens;
// what is said here is what became of a method.
var Table = sync.OnceValue(func() *apiversion.Table {
	secret, err := apiversion.FromLens(apiversion.Resource{
		Old: secretV1, New: secretV2, UpMapping: upMapping{Lens().UpMapping()}, DownMapping: Lens().DownMapping(),
	}, messageLens{Lens()})
	var t *apiversion.Table
	if err == nil {
		t, err = apiversion.NewTable(apiversion.Config{
			Old: serviceV1, New: serviceV2, Resources: []*apiversion.Resource{secret},
			Methods: []apiversion.Method{
				{Old: "SetPayload", New: "RotateSecret"},
				{Old: "ListOwners", Discontinued: "ask ListSecrets for the owner, with a read mask"},
				{Old: "ListSecrets", New: "ListSecrets", Request: narrow},
				{Old: "WatchSecrets", New: "WatchSecrets", Request: narrow},
			},
		})
	}
	if err != nil {
		panic(fmt.Sprintf("table of the secrets' methods: %v", err)) // every test would meet it
	}
	return t
})

// messageLens is the lens on documents of messages rather than of records. They have the
// empty fields that records leave out, and what is about to be made has no name yet.
type messageLens struct{ apiversion.Lens }

func (l messageLens) Up(doc, have bson.Raw) (bson.Raw, error) {
	return l.turn(l.Lens.Up, "projects/-/secrets/-", doc, have)
}

func (l messageLens) Down(doc, have bson.Raw) (bson.Raw, error) {
	return l.turn(l.Lens.Down, "projects/-/regions/"+Region+"/secrets/-", doc, have)
}

func (messageLens) turn(turn func(doc, have bson.Raw) (bson.Raw, error), unnamed string, doc, have bson.Raw) (out bson.Raw, err error) {
	if id, _ := doc.Lookup("_id").StringValueOK(); id == "" {
		// Whoever asked for this sets the name afterwards, which is none.
		if doc, err = renamed(doc, unnamed); err != nil {
			return nil, err
		}
	}
	if doc, err = withoutEmpty(doc); err != nil {
		return nil, err
	}
	if have != nil {
		if have, err = withoutEmpty(have); err != nil {
			return nil, err
		}
	}
	return turn(doc, have)
}

// renamed is a document with another _id and name.
func renamed(doc bson.Raw, name string) (bson.Raw, error) {
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		return nil, err
	}
	for i := range d {
		if d[i].Key == "_id" || d[i].Key == "name" {
			d[i].Value = name
		}
	}
	return bson.Marshal(d)
}

// upMapping is the lens's, with what it cannot know: in a message an empty field is one
// that the record does not have, and an owner is always team/person.
type upMapping struct{ transform.Mapping }

func (m upMapping) Compare(c transform.Condition) ([]transform.Condition, error) {
	empty := slices.Contains(sparse, c.Path) && slices.ContainsFunc(c.Values, func(v any) bool { return v == "" || v == int64(0) })
	switch {
	case empty && c.Op == transform.OpIn && len(c.Values) > 1:
		// Then each value is asked for by itself.
		return nil, &transform.MappingError{Field: c.Path, Reason: "an empty value cannot be one of several"}
	case empty && (c.Op == transform.OpEqual || c.Op == transform.OpIn):
		return m.empty(c.Path)
	case c.Path == "owner" && c.Op == transform.OpPrefix && len(c.Values) == 1:
		if prefix, ok := c.Values[0].(string); ok {
			return ownerBegins(prefix), nil
		}
	}
	return m.Mapping.Compare(c)
}

// empty asks for records without a field: in messages, unset or empty.
func (m upMapping) empty(path string) ([]transform.Condition, error) {
	if path == "expires_at" {
		return []transform.Condition{{Path: "expire_time", Op: transform.OpEqual, Values: []any{nil}}}, nil
	}
	paths, err := m.Field(path)
	out := make([]transform.Condition, len(paths))
	for i, p := range paths {
		out[i] = transform.Condition{Path: p, Op: transform.OpEqual, Values: []any{""}}
	}
	return out, err
}

// ownerBegins asks for the beginning of team/person.
func ownerBegins(prefix string) []transform.Condition {
	team, person, whole := strings.Cut(prefix, "/")
	switch {
	case !whole:
		return []transform.Condition{{Path: "owner_team", Op: transform.OpPrefix, Values: []any{team}}}
	case team == "" || strings.Contains(person, "/"):
		return []transform.Condition{{Path: "owner_team", Op: transform.OpIn}} // no owner begins so
	default:
		return []transform.Condition{
			{Path: "owner_team", Op: transform.OpEqual, Values: []any{team}}, {Path: "owner_person", Op: transform.OpPrefix, Values: []any{person}},
		}
	}
}

// narrow makes a translated request for all projects one for the region that v1 shows.
func narrow(_ context.Context, old proto.Message, now *dynamicpb.Message, derive func(handled ...string) error) error {
	if err := derive(); err != nil {
		return err
	}
	set := func(field protoreflect.Name, text string) {
		now.Set(now.Descriptor().Fields().ByName(field), protoreflect.ValueOfString(text))
	}
	if listing.Text(old.ProtoReflect(), "parent") == "" {
		set("parent", "projects/-/regions/"+Region)
	}
	fields := listing.FieldsOf(now.Descriptor())
	token := listing.Text(now, fields.PageToken)
	if token == "" {
		return nil
	}
	// The token is one of this request, as it is now.
	place, err := listing.ParseToken(token)
	if err != nil {
		return err
	}
	if place.Digest, err = listing.Digest(now, fields); err != nil {
		return err
	}
	set(fields.PageToken, place.String())
	return nil
}
