package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// relations are the fields that hold package relations: lists of alternatives.
var relations = map[string]bool{
	"Depends": true, "Pre-Depends": true, "Recommends": true, "Suggests": true,
	"Enhances": true, "Breaks": true, "Conflicts": true, "Replaces": true,
	"Provides": true, "Built-Using": true, "Static-Built-Using": true,
	"X-Cargo-Built-Using": true,
}

// dropped fields repeat other fields, and would enlarge the sample noticeably.
var dropped = map[string]bool{"MD5sum": true, "Description-md5": true}

// convert returns the document of the i-th record of the sample. It omits fields that the package
// lacks. The type of some fields depends on the package, as in real data.
func convert(s stanza, i int) (bson.D, error) {
	doc := bson.D{{Key: "_id", Value: id(s, i)}}
	for _, f := range s {
		if dropped[f.name] {
			continue
		}
		value, err := convertField(f)
		if err != nil {
			return nil, err
		}
		doc = append(doc, bson.E{Key: key(f.name), Value: value})
	}
	return doc, nil
}

// id returns the package's name for most records. Three in a hundred get another type, since real
// collections mix types too: half of them a sub-document, the others a 32- or 64-bit integer.
func id(s stanza, i int) any {
	// The prefix makes this choice independent of choose, which hashes the bare name.
	switch hash("id of "+s.name()) % 200 {
	case 0, 1, 2:
		return bson.D{{Key: "name", Value: s.name()}, {Key: "arch", Value: s.get("Architecture")}}
	case 3, 4:
		return int32(i)
	case 5:
		return int64(1)<<33 + int64(i)
	}
	return s.name()
}

// key returns the name of a field in the document.
func key(name string) string {
	switch name {
	case "Package":
		return "name"
	case "Tag":
		return "tags"
	}
	return strings.ToLower(strings.ReplaceAll(name, "-", "_"))
}

func convertField(f field) (any, error) {
	switch f.name {
	case "Installed-Size", "Size":
		n, err := strconv.ParseInt(f.value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		// The smallest type that fits, as most drivers write numbers.
		if int64(int32(n)) == n {
			return int32(n), nil
		}
		return n, nil
	case "Maintainer", "Original-Maintainer":
		return person(f.value), nil
	case "Source":
		return source(f.value), nil
	case "Tag":
		return tags(f.value), nil
	case "Essential", "Build-Essential", "Important", "Protected":
		return f.value == "yes", nil
	case "Ruby-Versions", "Lua-Versions", "Build-Ids", "Cnf-Extra-Commands", "Cnf-Ignore-Commands":
		return list(strings.FieldsFunc(f.value, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })), nil
	}
	if relations[f.name] {
		return relation(f.value)
	}
	return f.value, nil
}

// person splits "Jane Doe <jane@example.org>". It omits the name if there is only an address, and
// the address if there is only a name.
func person(s string) bson.D {
	name, mail, ok := strings.Cut(s, "<")
	if !ok {
		return bson.D{{Key: "name", Value: s}}
	}
	var d bson.D
	if name = strings.Trim(strings.TrimSpace(name), `"`); name != "" {
		d = append(d, bson.E{Key: "name", Value: name})
	}
	return append(d, bson.E{Key: "email", Value: strings.TrimSuffix(strings.TrimSpace(mail), ">")})
}

// source is a plain name, or {name, version} if the source's version differs from the package's.
func source(s string) any {
	name, version, ok := strings.Cut(s, " (")
	if !ok {
		return s
	}
	return bson.D{{Key: "name", Value: name}, {Key: "version", Value: strings.TrimSuffix(version, ")")}}
}

// tags converts "role::program, works-with::db, works-with::text" to {role: "program", works-with:
// ["db", "text"]}. One value is a string, several are a list, and a tag without a value is true.
func tags(s string) bson.D {
	var d bson.D
	values := map[string]bson.A{}
	for _, tag := range strings.Split(s, ",") {
		facet, value, ok := strings.Cut(strings.TrimSpace(tag), "::")
		// The order of the index is kept, which a map alone would lose.
		if _, seen := values[facet]; !seen {
			d = append(d, bson.E{Key: facet})
		}
		if ok {
			values[facet] = append(values[facet], value)
		} else {
			values[facet] = append(values[facet], true)
		}
	}
	for i := range d {
		d[i].Value = values[d[i].Key]
		if len(values[d[i].Key]) == 1 {
			d[i].Value = values[d[i].Key][0]
		}
	}
	return d
}

// oneRelation matches "name:arch (op version)"; all parts after the name are optional.
var oneRelation = regexp.MustCompile(`^([^\s:(]+)(?::(\S+))?\s*(?:\(\s*([<>=]+)\s*([^)\s]+)\s*\))?$`)

// relation converts "a (>= 1), b | c:any" to [[{a >= 1}], [{b}, {c any}]]. A package needs all
// entries of the outer list, and any one of each inner list.
func relation(s string) (bson.A, error) {
	all := bson.A{}
	for _, group := range strings.Split(s, ",") {
		if strings.TrimSpace(group) == "" {
			continue // a trailing comma
		}
		alternatives := bson.A{}
		for _, one := range strings.Split(group, "|") {
			// An unknown form stops the conversion, instead of entering the sample as free text.
			m := oneRelation.FindStringSubmatch(strings.TrimSpace(one))
			if m == nil {
				return nil, fmt.Errorf("relation %q is not understood", strings.TrimSpace(one))
			}
			d := bson.D{{Key: "name", Value: m[1]}}
			for i, k := range []string{"arch", "op", "version"} {
				if m[i+2] != "" {
					d = append(d, bson.E{Key: k, Value: m[i+2]})
				}
			}
			alternatives = append(alternatives, d)
		}
		all = append(all, alternatives)
	}
	return all, nil
}

func list(words []string) bson.A {
	a := make(bson.A, len(words))
	for i, w := range words {
		a[i] = w
	}
	return a
}
