# find_python ROOT PYTHON...: print each interpreter that is there with its version, then the system.
# ROOT is where etc/ is; tests set another one.
root=$1
shift
for python in "$@"; do
  path=$(command -v "$python") && version=$("$path" -c 'import platform; print(platform.python_version())' 2>/dev/null) && echo "$path $version"
done
ID='' VERSION_ID='' ID_LIKE='' PRETTY_NAME=unknown
# CentOS 6 has no os-release.
test ! -r "$root/etc/os-release" || . "$root/etc/os-release"
# More exact than os-release: CentOS Linux release 7.5.1804 (Core)
release=$(cat "$root/etc/redhat-release" 2>/dev/null) || release=$PRETTY_NAME
echo "system $ID$VERSION_ID"
echo "family: $ID $ID_LIKE"
echo "release: $release"
