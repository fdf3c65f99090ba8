package apiversion

import "google.golang.org/protobuf/proto"

// TypedOption declares to Typed the fields that differ between the versions.
type TypedOption func(*oneSided)

// oneSided holds the paths that only one version has.
type oneSided struct{ old, new []string }

// OnlyOld names fields that the new version lacks or has with another type. Paths are dotted and
// lead through messages, not into lists or maps. Requests that filter, sort or mask by these fields
// fail. So do requests that give them a value that the functions do not keep.
func OnlyOld(paths ...string) TypedOption {
	return func(o *oneSided) { o.old = append(o.old, paths...) }
}

// OnlyNew names fields that the old version lacks or has with another type. See OnlyOld.
func OnlyNew(paths ...string) TypedOption {
	return func(o *oneSided) { o.new = append(o.new, paths...) }
}

// Typed makes a Resource from two functions on generated messages. have is the existing message of
// the other version. It is the zero value if none is known.
//
// Requests on fields with the same path and type in both messages pass unchanged. OnlyOld and
// OnlyNew must name all other fields. Otherwise Typed fails, so that no field is forgotten. To
// translate requests on such a field, wrap the Resource's mapping in your own. Names are equal in
// both versions (SameNames). To change that, set SameNames to false and map names in the mappings.
func Typed[O, N proto.Message](up func(old O, have N) (N, error), down func(now N, have O) (O, error), options ...TypedOption) (*Resource, error) {
	var o O
	var n N
	r := &Resource{
		Old: o.ProtoReflect().Descriptor(), New: n.ProtoReflect().Descriptor(),
		Up: typed(up), Down: typed(down), SameNames: true,
	}
	var only oneSided
	for _, option := range options {
		option(&only)
	}
	var err error
	if r.UpMapping, err = newSameFields(r.Old, r.New, "OnlyOld", only.old); err != nil {
		return nil, err
	}
	if r.DownMapping, err = newSameFields(r.New, r.Old, "OnlyNew", only.new); err != nil {
		return nil, err
	}
	return r.checked()
}

// typed adapts a function on generated messages to Converter.
func typed[A, B proto.Message](f func(A, B) (B, error)) Converter {
	return func(msg, have proto.Message) (proto.Message, error) {
		a, err := as[A](msg)
		if err != nil {
			return nil, err
		}
		var b B
		// A nil interface cannot become a B. The zero B stands for "nothing known".
		if have != nil {
			if b, err = as[B](have); err != nil {
				return nil, err
			}
		}
		return f(a, b)
	}
}

// as returns msg as a generated type. It copies msg only if it has another implementation.
func as[T proto.Message](msg proto.Message) (T, error) {
	if t, ok := msg.(T); ok {
		return t, nil
	}
	var none T
	out := none.ProtoReflect().New().Interface()
	return out.(T), recast(out, msg)
}
