// Package lens turns YAML into transformers. A lens is a list of operations on fields that turns
// records of one API version into records of the next. Every operation can be undone. So the same
// text also gives the transformation in the other direction, which the package calls the reverse.
//
// # Vocabulary
//
// A kind is a collection, and a record is a document in it. A key is a record's _id. A group is a
// set of records that transform together. The engine is the code that copies and syncs records
// between two versions. A parked record is one that the engine could not transform; it blocks the
// switch until it is fixed or waived. The complement is the record that the other side already
// holds, from which a lens takes the fields that the source cannot express.
//
// # A lens
//
// This example has one of each operation. docs/lens.md explains lenses step by step.
//
//	lens: 1
//	kinds: {from: packages, to: packages}
//	key: {from: "packages/{name}", to: "regions/{region}/packages/{name}", with: {region: us-west2}}
//	operations:
//	  - rename: {from: section, to: category}
//	  - move: {from: homepage, to: links.homepage}
//	  - convert: {field: installed_size, from: int, to: long}
//	  - convert: {field: priority, table: {optional: normal, required: base}}
//	  - add: {field: schema, value: 2}
//	  - add: {field: state, default: new}
//	  - remove: {field: legacy, default: ""}
//	  - copy: {from: name, to: title}
//	  - wrap: {field: maintainer}
//	  - unwrap: {field: architectures}
//	  - split: {field: version, to: [epoch, upstream], separator: ":", rest: true}
//	  - join: {fields: [host, port], to: address, separator: ":"}
//	  - normalize: {field: email, steps: [trim, lower]}
//	  - splitList: {field: tags, separator: ",", tidy: true}
//	  - joinList: {field: keywords, separator: "; "}
//	  - each:
//	      field: depends
//	      match: name
//	      operations:
//	        - rename: {from: ver, to: version}
//	        - add: {field: optional, default: false}
//	  - each: {field: sizes, in: map, operations: [convert: {field: ., from: int, to: long}]}
//	  - compute:
//	      from: [price]
//	      to: [cents]
//	      up: {cents: int(math.round(price * 100.0))}
//	      down: {price: double(cents) / 100.0}
//	  - hook: {name: normalize, from: [raw], to: [text]}
//	  - reference: {field: source, kind: self}
//	  - fanOut: {field: releases, as: list, kind: releases, key: "{_key}/{id}", id: version, order: position, parent: package}
//	  - gather: {kind: ratings, field: rating, as: object, key: "{_key}/rating"}
//
// # Operations
//
// Up applies the operations in order. Down undoes them in reverse order. Each path is dotted and
// names one value. Only the operation each leads a path through a list.
//
//   - rename gives a field another name. The field keeps its object and its place.
//   - move moves a field to another object. The record itself counts as one. It creates missing
//     objects and removes objects that become empty.
//   - convert changes the type of a value, or replaces values by a table. Null and absence stay.
//     The types are string, int, long, double, decimal, bool, objectId, uuid, date, rfc3339 (a
//     string), epoch (a long, in seconds), epochMillis (a long), and number. A number is an int,
//     long, double or decimal, as its writer chose. Equal numbers count as the same value, and each
//     side keeps its type. With rounding, all dates of one second are the same epoch and keep their
//     milliseconds.
//   - add adds a field to each new record, if its parent object exists. value is a constant that
//     only the lens controls. default is a first value; the new version's application owns the
//     field afterwards.
//   - remove removes a field from each old record. Down writes default into records that the old
//     version never had. Without default it writes nothing.
//   - copy is an add whose default is the value of another field.
//   - wrap turns a value into a list of one item. unwrap turns such a list into its value; a list
//     with more items, or with none, is an error. Null and absence stay.
//   - split splits a string into fields, and join joins strings to one. The string must have
//     exactly as many parts as there are fields; parts may be empty. With rest, the last part takes
//     everything that is left. Two cases are errors: a part that contains the separator (except a
//     rest), and a missing part among present ones. If the string is absent or null, so are all the
//     parts.
//   - splitList turns a string into a list of strings, and joinList turns such a list into a
//     string. The empty string is the empty list. With tidy, blanks around items and empty items
//     have no meaning. Without tidy, a value that would not come back is an error.
//   - normalize brings values with the same meaning into one form: trim, lower, upper, nfc, zero
//     (of -0), emptyToAbsent, nullToAbsent, sort, deduplicate. Each side keeps its own form while
//     the normal forms are equal.
//   - each applies operations to every item of a list or every value of a map. in restricts the
//     field to one of the two. "." is the item itself; convert, wrap, unwrap, splitList, joinList,
//     normalize, compute, hook and each accept it. Operations on fields skip items that have no
//     fields. Some operations leave one side without a field: add with default, remove, and copy.
//     They must find the same item on the other side: by its name in a map, and by the field in
//     match in a list. Two list items with the same match value, or an item without one, are
//     errors.
//   - compute calculates fields from other fields by CEL expressions, one for each field of the
//     other side. An expression names a field by its path and an item as "item". An absent field
//     reads as null. A null result gives no field; write absent where CEL asks for one type. Whole
//     numbers become int if they fit; long(x), decimal(x), objectId(x) and string(x) give these
//     types. If all fields are absent or all are null, nothing is computed. Expressions have no
//     clock and no time zones. More than 100,000 steps are an error. The order of fields in a
//     computed object has no meaning, unless fieldOrder is exact.
//   - hook works like compute, with a pair of Go functions that the program passes to Parse.
//
// # Keys and several kinds
//
// A lens may declare its kinds and how their keys change:
//
//   - key changes the _id from one form to another. A form is one of three: a Pattern, whose _ids
//     are strings; one variable of another type, such as {id:objectId}; or the fields of a document
//     with a pattern for each, such as {tenant: "{tenant}", id: "{id:objectId}"}. A variable that
//     only one form has is either a constant or a field of the other side's record. With a
//     constant, keys follow from each other alone, and records with another value are refused. With
//     {field: path}, the field's value goes into the key and comes back out of it. keep: true keeps
//     the field in both versions; type declares the field's type if it differs from the key's. with
//     defines the variables that only to has, and without the variables that only from has.
//   - reference makes a field, or with list its items, follow the key of another kind. The kind
//     belongs to this lens (self), to another lens of the Set, or to a service in imports, which
//     names lens files relative to this one. A value that is not a key of the kind is an error.
//     With optional it stays, unless the reverse would take it for a key.
//   - fanOut turns the entries of a list, a map or an object into records of another new kind.
//     gather turns records of another old kind into such a field. Each is the reverse of the other.
//     operations apply to the entries, from old to new.
//
// A variable carries a value between the types of both sides as its text, which is unique for each
// value. For an objectId or uuid the text is its hexadecimal digits, for a date its time, and for
// an int, long, double or number its decimal digits. A variable of type number is a whole number of
// any type, and a record keeps the type in its _id. A new one is an int if it fits, and else a
// double, as JavaScript writes it. Two cases are errors of the record: a text that no value has,
// and a value of another type than the declared one. Where only a key is known, equal numbers of
// all types are equal. A value of type any is copied and has no text.
//
// The key of a child is such a form. Its variables are {_key} (the parent's _id on the children's
// side), the variables of the parent's key, {index} (the place in the list), {id}, and
// {item.<field>}. If the key is a text that begins with the parent's name, or follows completely
// from it, the child's group follows from its key. Otherwise the lens must declare parent, the
// child's field with the parent's key, and groups go by content. A variable that stands alone keeps
// its type, also in the field of a document. An item's _id goes into the key and comes back out of
// it. id is the field that distinguishes the items of a list; for a map it is the child's field
// with the entry's name, if the key does not contain the name. value is the child's field for
// entries that have no fields.
//
// A list needs an order. The child's field order holds the place and may have gaps. {index} in the
// key holds it without gaps. Otherwise the list must be sorted by id. Nulls and empty lists and
// maps stay in the record, so they are not confused with absent fields. They go away when there are
// entries. With empty: present, an empty list or map means the same as an absent one: each record
// keeps its present state, and a new record gets the empty one. Three cases are errors: two entries
// with the same child, a child without its parent, and a child whose fields contradict its key.
//
// # Guarantees
//
// Down(Up(x)) equals x, except for the order of moved fields. A value that would not come back bit
// for bit is an error with operation, field and reason (RecordError). So is a record with a field
// whose name the lens uses on the other side. The engine parks such a record, and never guesses.
// Fields that only one side can hold survive on that side as the complement (Lost lists them). A
// lens with add and default needs the complement for Up, and a lens with remove needs it for Down.
// An unchanged record comes out byte for byte as the complement has it. Fields that no operation
// names keep their bytes and are not decoded.
//
// UpMapping and DownMapping translate requests between the versions by the same operations, and
// refuse requests that have no exact translation. Schema returns the format as a JSON Schema.
//
// # What this package does not own
//
// The package does not read collections. It does not copy indexes or validators either: MapIndex
// returns an index spec for the other side, and TouchesValidator reports whether a validator names
// fields that the lens changes.
//
// # Where to begin
//
// A service in Go calls Parse, then Set.Link if its lenses have references, then Lens.Spec. The
// program dbcontroller reads lens files by itself.
//
// To read the code, begin with Parse and Lens. operation.go lists the operations of the format, and
// the files operation*.go parse them. Package internal/operation implements and runs them
// (program.go). For several kinds, begin with opfan.go and package internal/fanout.
package lens
