object 4b825dc642cb6eb9a060e54bf8d69288fbee4904
type tree
tag v1
tagger Ops <ops@example.com> 1614859200 +0000

plain
