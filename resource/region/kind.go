package region

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Kind declares the owning region of the records of a kind, and how they are copied. Exactly one of
// Field and Collection is set.
type Kind struct {
	// Field is the field of the message, of type string, with the name of the owning region. The
	// service sets it in new records (Own). In a record without it, the region that has the record
	// owns it.
	Field string
	// Collection is the part of the record's name in front of the region: regions for names such as
	// projects/p/regions/eu/secrets/s. Such a record keeps its region, because its name has it.
	Collection string
	// Move is a field of the message, of type string, in which the server keeps how far a move of the
	// record to another region is. With it, a change of Field moves the record. Servers set it in
	// every write; what clients send is ignored. Transformers must carry both fields unchanged. All
	// versions of a service set it, or none. Empty: records do not move. Only with Field.
	Move string
	// Watch is the procedure that sends the records of the kind and their changes, without the
	// leading slash: secrets.v2.SecretService/WatchSecrets. An empty request must mean all records.
	Watch string
	// Table returns the table of the kind, which knows how messages become records.
	Table func(vrunner.Store) Table
}

// Table is what copies need of a resource.Table.
type Table interface {
	// Watched returns a function that reads the messages of a watch. It returns the event and, for
	// vrunner.EventPut, the record as the table itself would store the resource.
	Watched(m protoreflect.MethodDescriptor) (func(proto.Message) (vrunner.Event, record.Record, error), error)
	// Acceptable returns an error if the table would not create a resource with this record.
	Acceptable(ctx context.Context, rec record.Record) error
}

// CopiesKind returns the kind that holds the copies of a kind.
func CopiesKind(kind string) string { return kind + "_copies" }

// StateKind is the kind with the state of the copies of a namespace. Its records belong to the
// processes that make copies.
const StateKind = "copies_state"

// CheckName returns an error if text cannot be the name of a region.
func CheckName(text string) error {
	if text == "" || strings.ContainsAny(text, separator+"/\x00") {
		return fmt.Errorf("%q is no name of a region", text)
	}
	return nil
}

// Check returns an error if the declaration of a kind is incomplete.
func (k Kind) Check(kind string) error {
	switch {
	case (k.Field == "") == (k.Collection == ""):
		return fmt.Errorf("%s: set either Field or Collection, the place of the owning region", kind)
	case strings.ContainsAny(k.Field, ".$"):
		return fmt.Errorf("%s: Field is %q, want a field of the message itself", kind, k.Field)
	case k.Move != "" && (k.Field == "" || k.Move == k.Field || strings.ContainsAny(k.Move, ".$")):
		return fmt.Errorf("%s: Move is %q, want another field of the message itself, next to Field", kind, k.Move)
	case strings.Count(k.Watch, "/") != 1:
		return fmt.Errorf("%s: Watch is %q, want SERVICE/METHOD", kind, k.Watch)
	case k.Table == nil:
		return fmt.Errorf("%s: it has no Table", kind)
	}
	return nil
}

// Method returns the procedure Watch among the APIs of a version.
func (k Kind) Method(apis []protoreflect.ServiceDescriptor) (protoreflect.MethodDescriptor, error) {
	service, method, _ := strings.Cut(k.Watch, "/")
	for _, api := range apis {
		if string(api.FullName()) != service {
			continue
		}
		if m := api.Methods().ByName(protoreflect.Name(method)); m != nil && m.IsStreamingServer() && !m.IsStreamingClient() {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s is no procedure of the version that answers with a stream", k.Watch)
}

// CheckMove returns an error if messages of the watch m have no field Move of type string.
func (k Kind) CheckMove(m protoreflect.MethodDescriptor) error {
	fields := m.Output().Fields()
	for i := range fields.Len() {
		message := fields.Get(i).Message()
		if k.Move == "" || message == nil {
			continue
		}
		if f := message.Fields().ByName(protoreflect.Name(k.Move)); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			return nil
		}
	}
	if k.Move == "" {
		return nil
	}
	return fmt.Errorf("the resource of %s has no field %s of type string, which Move names", k.Watch, k.Move)
}

// OwnerOf returns the region that a record names as its owner, or "" if it names none. doc may be nil
// if only the name is known.
func (k Kind) OwnerOf(name string, doc bson.Raw) string {
	if k.Collection != "" {
		parts := strings.Split(name, "/")
		for i := 0; i+1 < len(parts); i += 2 {
			if parts[i] == k.Collection {
				return parts[i+1]
			}
		}
		return ""
	}
	owner, _ := doc.Lookup(k.Field).StringValueOK()
	return owner
}

// separator is between the region and the name in the key of a copy. Names of regions do not have it.
const separator = ":"

// CopyKey returns the key of the copy of a record. Each region's copies have a prefix of their own, so
// that copies of two regions never meet, whatever comes late.
func CopyKey(region, name string) string { return region + separator + name }

// OfCopy returns the region and the name in the key of a copy.
func OfCopy(key string) (region, name string, ok bool) { return strings.Cut(key, separator) }

// WithID returns a document with another _id.
func WithID(doc bson.Raw, id string) (bson.Raw, error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	out := bson.D{{Key: "_id", Value: id}}
	for _, e := range elements {
		if e.Key() != "_id" {
			out = append(out, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return bson.Marshal(out)
}

// OwnedHeader is the header of a request that reads owned records only. Servers of other regions set
// it, so that no copy is copied again.
const OwnedHeader = "Dbcontroller-Owned"

type ownedKey struct{}

// Owned returns a context whose reads see owned records only.
func Owned(ctx context.Context) context.Context { return context.WithValue(ctx, ownedKey{}, true) }

func onlyOwned(ctx context.Context) bool { return ctx.Value(ownedKey{}) != nil }

// Handler lets requests with OwnedHeader see owned records only.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(OwnedHeader) != "" {
			r = r.WithContext(Owned(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}
