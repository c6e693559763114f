# shellcheck shell=bash
# Settings of sites: `cluster up --like SITE` reads sites/SITE.conf, in which a line is a verb and its words. Sourced by `cluster`.

NO_SITE=-  # of a cluster like no site

check_site() {  # SITE
  local sites
  sites=$(cd "$HERE/sites" && echo *.conf)
  [ -e "$HERE/sites/$1.conf" ] || die "--like knows ${sites//.conf/}, got '$1'"
}

site_says() {  # SITE VERB: the words behind this verb, a line for each time that it is said
  [ "$1" = "$NO_SITE" ] || sed -n "s/^$2 //p" "$HERE/sites/$1.conf"
}

gpus_of() {  # SITE NODE GPUS: of this node; GPUS: of all others
  local words
  words=$(site_says "$1" "gpus $2")
  echo "${words:-$3}"
}

slices_of() {  # SITE NODE: into how many parts each of its GPUs is divided (MIG), which Slurm then counts; 0: into none
  local words
  words=$(site_says "$1" "mig $2")
  echo "${words:-0}"
}

# On the files that Slurm reads, when they are written
apply_site() {  # SITE
  local setting hook seconds most
  while read -r setting; do set_line "$STATE/slurm.conf" "$setting"; done < <(site_says "$1" slurm)
  while read -r setting; do set_line "$STATE/cgroup.conf" "$setting"; done < <(site_says "$1" cgroup)
  while read -r setting; do sed -i "s/ OverSubscribe=[A-Z]*/ $setting/" "$STATE/slurm.conf"; done < <(site_says "$1" partition)
  for hook in prolog epilog; do
    seconds=$(site_says "$1" "$hook")
    [ -n "$seconds" ] || continue
    printf '#!/bin/sh\nexec sleep %s\n' "$seconds" >"$STATE/$hook"
    chmod 755 "$STATE/$hook"
    set_line "$STATE/slurm.conf" "${hook^}=$STATE/$hook"
    set_line "$STATE/slurm.conf" PrologFlags=Alloc
  done
  [ "$(site_says "$1" refuse)" != without-gpu ] || refuse_without_gpu
  most=$(site_says "$1" max-submit-jobs)
  [ -z "$most" ] || refuse_more_than "$most"
}

set_line() {  # FILE KEY=VALUE: in place of the line with this key, or at the end
  if grep -q "^${2%%=*}=" "$1"; then
    sed -i "s|^${2%%=*}=.*|$2|" "$1"
  else
    echo "$2" >>"$1"
  fi
}

# As a site's job_submit plugin does it.
refuse_without_gpu() {
  set_line "$STATE/slurm.conf" JobSubmitPlugins=lua
  cat >"$STATE/job_submit.lua" <<'LUA'
function slurm_job_submit(job, partitions, user)
  local asked = (job.gres or "") .. (job.tres_per_job or "") .. (job.tres_per_node or "") .. (job.tres_per_task or "")
  if asked:find("gpu") then return slurm.SUCCESS end
  slurm.log_user("this partition takes only jobs that ask for a GPU")
  return 2072  -- ESLURM_INVALID_GRES
end

function slurm_job_modify(job, known, partitions, user) return slurm.SUCCESS end
LUA
}

# What a QOS with MaxSubmitJobs does, which needs an accounting database: of jobs and tasks of arrays, in Slurm's words. A plugin
# would not do: the table that it is given lags by a second.
refuse_more_than() {  # JOBS
  cat >"$STATE/bin/sbatch" <<SH
#!/bin/bash
last=\$(grep -oE -- '--array=0-[0-9]+' <<<"\$*" | grep -oE '[0-9]+\$') || last=0
if (( \$(squeue --noheader --array --user="\$(id -un)" | wc -l) + last + 1 > $1 )); then
  echo "sbatch: error: AssocMaxSubmitJobLimit" >&2
  echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)" >&2
  exit 1
fi
exec $(command -v sbatch) "\$@"
SH
  chmod 755 "$STATE/bin/sbatch"
}
